"""RedisLock, with its fence claimed at the read.

The first statement of the transaction shows the fence to the database: a holder that was paused
until its lease passed on finds a higher one there and sells nothing. Claimed at the write instead,
two holders could both have read the same stock before (strategy `fence-at-write`).
"""

from __future__ import annotations

from django.db import connection

from locks import Lease, RedisLock
from shop.errors import Lost, UnknownProduct
from shop.models import Product
from shop.purchase import Attempt, Receipt, Stock, sell_one
from shop.strategies.locked import on_redis, sell_under
from shop.strategies.registry import Strategy, verdicts

CLAIM = """
    UPDATE product SET fence = %s WHERE name = %s AND fence < %s AND sale_id IS NOT NULL
    RETURNING id, sale_id, amount
"""


def sell(attempt: Attempt, lease: Lease) -> Receipt:
    def claim(attempt: Attempt) -> Stock:
        with connection.cursor() as cursor:
            cursor.execute(CLAIM, [lease.fence, attempt.product, lease.fence])
            row = cursor.fetchone()
        if row is None:
            if Product.objects.filter(name=attempt.product, sale__isnull=False).exists():
                raise Lost("a later holder of the lock was here first; nothing was sold")
            raise UnknownProduct
        return Stock(*row)

    return sell_one(attempt, read=claim, fence=lease.fence)


STRATEGY = Strategy(
    name="redis",
    title="RedisLock with a fence",
    article="A0 A1 A2 A3 A4, and beyond",
    summary="The lock to copy: its fence, claimed at the read, stops a holder that lost it.",
    buy=sell_under(on_redis(RedisLock), sell),
    sound=True,
    expected=verdicts(
        exact=(
            "rush crash slow late-release pause pause@acquired clock restart failover "
            "failover@sentinel lost-reply unknown-commit busy redis-down stall eviction db-kill "
            "shutdown shutdown@short"
        ),
    ),
    stops={
        "restart": "acquired",
        "failover": "acquired",
        "failover@sentinel": "acquired",
        "eviction": "acquired",
    },
)
