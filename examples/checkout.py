"""Sell one unit to one buyer: the lock outside, the transaction inside, the fence at the read.

Copy it with locks/one_file.py, and add to your models what examples/models.py marks. Where many
wait for one lock, copy the folder locks/ instead: RedisLock takes the place of OneFileLock, and
LockError that of LockTimeout. When the stock is one row of one database, no_lock.py is all you
need.
"""

import redis
from django.db import IntegrityError, InterfaceError, OperationalError, transaction

from examples.models import Order, Product
from locks.one_file import Lease, LockTimeout, OneFileLock

TTL = 10.0  # seconds that the lock survives a holder that stopped answering
WAIT = 5.0  # seconds that a buyer waits
MAX_HOLD = 20.0  # seconds after which a holder whose database hangs is renewed no more


class SoldOut(Exception):
    """No unit is left, and this key has bought none. Answer 409."""


class TryAgain(Exception):
    """Not sold, or nobody knows. Answer 503: asking again with the same key is safe."""


def buy(client: redis.Redis, *, product: int, buyer: str, key: str) -> Order:
    """Sell one unit; the same key gets the same order again. Raises SoldOut and TryAgain,
    IntegrityError for a key that bought something else, Product.DoesNotExist."""
    lock = OneFileLock(client, f"product:{product}", ttl=TTL, max_hold=MAX_HOLD)
    try:
        try:
            with lock.hold(wait=WAIT) as lease, transaction.atomic(durable=True):
                return _sell(product, buyer, key, lease)
        except (SoldOut, IntegrityError):
            order = Order.objects.filter(key=key, product=product, buyer=buyer).first()
            if order is None:
                raise
            return order
    except (LockTimeout, redis.RedisError, OperationalError, InterfaceError) as error:
        raise TryAgain from error


def _sell(product: int, buyer: str, key: str, lease: Lease) -> Order:
    # The first statement claims the fence: a holder that was paused until its lock passed on finds
    # a higher one, and sells nothing. Checked at the write only, both could have read the same.
    behind = Product.objects.filter(pk=product, fence__lt=lease.fence)
    claimed = behind.update(fence=lease.fence)
    amount = Product.objects.values_list("amount", flat=True).get(pk=product)
    if not claimed:
        raise TryAgain("a newer holder of the lock has claimed this product")
    if amount < 1:
        raise SoldOut
    # What takes time and needs the stock to stay (a payment, another system) belongs here.
    Product.objects.filter(pk=product).update(amount=amount - 1)
    return Order.objects.create(product_id=product, buyer=buyer, key=key)
