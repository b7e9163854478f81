"""RedisLock, whose fencing token the database checks before the read.

A fencing token, here the lease's `fence`, is a number that is higher for every later holder of the
lock. The first statement of the transaction claims the fence: it writes the number to the product's
row, unless the row has a higher one. If a holder was paused until another buyer had the lock, the
row has a higher fence, and the paused holder sells nothing. To claim the fence at the write would
be too late, because two holders may have read the same stock (`fence-at-write`).

An asgi node takes the lock in its event loop (shop/sale/async_checkout.py) and calls only `sell`.
"""

from functools import partial

from django.db import transaction

from shop.sale.fences import claim_fence_and_read_stock
from shop.sale.locked import hold_lock, make_redis_lock
from shop.sale.purchase import AnyLease, Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    # Wait for the lock up to SHOP_LOCK_WAIT, without a transaction.
    with hold_lock(make_redis_lock(attempt)) as lease:
        receipt = sell(attempt, lease)
    return receipt.with_lease(lease)


def sell(attempt: Attempt, lease: AnyLease) -> Receipt:
    """Sell a unit under a lease that the caller holds."""
    with transaction.atomic(durable=True):  # commits before the lock is released
        return sell_one(attempt, read=partial(claim_fence_and_read_stock, lease), fence=lease.fence)


STRATEGY = Strategy(
    rank=160,
    title="RedisLock with a fence",
    article="A0 A1 A2 A3 A4, and beyond",
    summary="A fair, renewed lock: its fence, claimed at the read, stops a holder that lost it.",
    highlights=("with hold_lock(make_redis_lock", "UPDATE product SET fence"),
    buy=buy,
    holds_row=True,
    sell_in_loop=sell,
    sound=True,
    renewed=True,
    fenced=True,
)
