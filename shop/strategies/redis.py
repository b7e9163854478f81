"""RedisLock, with its fence claimed at the read.

The first statement of the transaction claims the fence in the database: a holder that was paused
until its lock passed on finds a higher one there and sells nothing. Claimed at the write instead,
two holders could both have read the same stock before (strategy `fence-at-write`).
"""

from __future__ import annotations

from django.db import connection

from locks import Lease
from shop.sale.fences import refusal
from shop.sale.locked import redis_lock, sell_under
from shop.sale.purchase import Attempt, Receipt, Stock, sell_one
from shop.sale.strategy import Strategy

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
            raise refusal(attempt, lease)
        return Stock(*row)

    return sell_one(attempt, read=claim, fence=lease.fence)


STRATEGY = Strategy(
    name="redis",
    title="RedisLock with a fence",
    article="A0 A1 A2 A3 A4, and beyond",
    summary="The lock to copy: its fence, claimed at the read, stops a holder that lost it.",
    buy=sell_under(redis_lock, sell),
    backend="redis",
    sound=True,
    renewed=True,
    fenced=True,
)
