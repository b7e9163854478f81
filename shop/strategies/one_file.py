"""OneFileLock (locks/one_file.py), whose fencing token the database checks.

A fencing token, here the lease's `fence`, is a number that is higher for every later holder of the
lock. Before a buyer reads the stock, it writes its fence to the product's row, as under the
strategy `redis`. If a holder was paused until another buyer had the lock, the row has a higher
fence, and the paused holder sells nothing. So the shop sells neither more nor fewer units than it
has. RedisLock adds a queue, which only makes waiting short and fair. Here the first buyer that
polls after the release gets the lock.
"""

from functools import partial

from django.conf import settings
from django.db import transaction

from locks.one_file import OneFileLock
from shop.ops.redis import locks_client
from shop.sale.fences import claim_fence_and_read_stock
from shop.sale.locked import hold_lock
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    lock = OneFileLock(
        locks_client(),
        attempt.lock_name,
        ttl=settings.SHOP_LOCK_TTL,
        max_hold=settings.SHOP_LOCK_MAX_HOLD,
    )
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(
                attempt, read=partial(claim_fence_and_read_stock, lease), fence=lease.fence
            )
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=165,
    title="A lock in one file, with a fence",
    summary="The lock that most shops should copy: no queue, but the fence is claimed at the read.",
    highlights=("with hold_lock(lock)", "UPDATE product SET fence"),
    buy=buy,
    holds_row=True,
    sound=True,
    renewed=True,
    fenced=True,
)
