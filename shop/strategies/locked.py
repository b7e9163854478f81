"""Around every lock the same: the lock outside, the transaction inside."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

import redis
from django.conf import settings
from django.db import transaction
from django_redis import get_redis_connection

from locks import Lease, Lock
from locks.points import point
from shop.purchase import Attempt, Receipt, sell_one


@cache
def locks_client() -> redis.Redis:
    """The raw client of the alias `locks`: no pickling, no retries, one pool per process."""
    return cast(redis.Redis, get_redis_connection("locks"))


def sell_plainly(attempt: Attempt, lease: Lease) -> Receipt:
    """Trust the lock: the database is not told of it."""
    return sell_one(attempt)


def sell_under(
    lock_for: Callable[[Attempt], Lock],
    sell: Callable[[Attempt, Lease], Receipt] = sell_plainly,
) -> Callable[[Attempt], Receipt]:
    """A `buy` that sells under the lock.

    The lock encloses the commit: released before it, the next buyer would read the old stock.
    `durable` makes Django raise where somebody nests this in a transaction of their own. No query
    runs before the lock is held: it would pin a pooled connection for as long as the buyer waits.
    """

    def buy(attempt: Attempt) -> Receipt:
        with lock_for(attempt).hold(wait=settings.SHOP_LOCK_WAIT) as lease:
            point("acquired")
            with transaction.atomic(durable=True):
                receipt = sell(attempt, lease)
            point("after_commit")
        return receipt.under(lease)

    return buy
