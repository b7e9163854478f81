"""Sell one unit to one buyer, under a lock.

The buyer acquires the lock, begins a transaction, claims the fence and then reads the stock. The
lock is released after the transaction. Each lease has a higher number, its fence, than the leases
before. To claim the fence, the buyer writes this number to the product's row, unless the row has a
higher one already. So a holder that lost the lock sells nothing.

Copy this file and locks/one_file.py, and adapt the two imports below. Add the fields and the
constraint that examples/models.py marks as `added` to your models. If many buyers wait for one
lock, copy the folder locks/ instead, and replace OneFileLock by RedisLock and LockTimeout by
LockError. If the stock is one row of one database, no_lock.py is all you need.
"""

import redis
from django.db import IntegrityError, InterfaceError, OperationalError, transaction

from examples.models import Order, Product
from locks.one_file import Lease, LockTimeout, OneFileLock

LOCK_TTL_SECONDS = 10.0  # how long the lock outlives a holder that died
LOCK_WAIT_SECONDS = 5.0  # how long a buyer waits for the lock
MAX_HOLD_SECONDS = 20.0  # how long the lock is renewed for a holder whose database hangs


class SoldOut(Exception):
    """No unit is left, and none was bought with this key. Respond with status 409."""


class TryAgain(Exception):
    """The unit was not sold, or the outcome is unknown.

    Respond with status 503. A retry with the same key is safe.
    """


def buy(client: redis.Redis, *, product: int, buyer: str, key: str) -> Order:
    """Sell one unit and return the order. A retry with the same key returns the same order.

    Args:
        client: A client whose time-outs and retries are bounded, because they limit how long a
            silent server blocks the buyer:
            `redis.Redis(socket_timeout=1, retry=Retry(NoBackoff(), 1))`.
        product: The id of the product.
        buyer: The name of the buyer.
        key: The idempotency key of the purchase.

    Raises:
        SoldOut: No unit is left. The buyer has no earlier order of this product with this key.
        TryAgain: The unit was not sold, or the outcome is unknown. Retry with the same key.
        IntegrityError: A unit was left, but the key belongs to another purchase.
        Product.DoesNotExist: There is no such product.
    """
    lock = OneFileLock(
        client, f"product:{product}", ttl=LOCK_TTL_SECONDS, max_hold=MAX_HOLD_SECONDS
    )
    try:
        try:
            with lock.hold(wait=LOCK_WAIT_SECONDS) as lease:
                with transaction.atomic(durable=True):  # commits before the lock is released
                    return _sell(product, buyer, key, lease)
        except (SoldOut, IntegrityError):  # an earlier request may have succeeded
            order = Order.objects.filter(key=key, product=product, buyer=buyer).first()
            if order is None:
                raise
            return order
    except (LockTimeout, redis.RedisError, OperationalError, InterfaceError) as error:
        raise TryAgain from error


def _sell(product: int, buyer: str, key: str, lease: Lease) -> Order:
    """Claim the fence, decrement the stock and record the order, inside buy()'s transaction."""
    # The first statement claims the fence: it writes the lease's number to the product's row. If
    # this holder was paused until another buyer claimed a newer fence, the product's fence is
    # higher than the lease's, and this holder sells nothing. A check only at the write would be too
    # late: both could have read the same stock.
    product_with_older_fence = Product.objects.filter(pk=product, fence__lt=lease.fence)
    has_claimed = product_with_older_fence.update(fence=lease.fence)
    # If there is no such product, no row was updated either, and get() raises DoesNotExist.
    amount = Product.objects.values_list("amount", flat=True).get(pk=product)
    if not has_claimed:
        raise TryAgain("a newer holder of the lock has claimed this product")
    if amount < 1:
        raise SoldOut
    # Put a payment here, or any call during which the stock must stay unchanged.
    Product.objects.filter(pk=product).update(amount=amount - 1)
    return Order.objects.create(product_id=product, buyer=buyer, key=key)
