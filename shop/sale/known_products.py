"""A cache of the products on sale, read before anything is stored under a product's name.

A lock, a fence and a ZooKeeper node outlive the request that names them, so an invented name must
not create any. And no buyer may occupy a connection of the pool while it waits for a lock. So this
process looks up a new name once, returns the connection to the pool, and caches the name. Unknown
names are not cached, because a product can go on sale at any moment.
"""

import threading

from django.db import connection

from shop.errors import Unavailable, UnknownProduct
from shop.models import Product

#: Time for which a thread waits for another thread's lookup: longer than a connect timeout.
LOOKUP_TIMEOUT_SECONDS = 8.0

_products: set[str] = set()  # also products whose sale has ended: the purchase checks again
_lookup_lock = threading.Lock()


def is_cached(product: str) -> bool:
    """Return whether the product is cached, so that no query is needed."""
    return product in _products


def require_on_sale(product: str) -> None:
    """Raise UnknownProduct if the product is not cached and not on sale. Cache it otherwise.

    A cached product passes, even if its sale has ended: the purchase checks that again. One thread
    of a process looks up at a time, so that invented names occupy at most one connection of the
    pool, and a rush for a new product sends one query. Raises Unavailable if the database is too
    slow.
    """
    if is_cached(product):
        return
    if not _lookup_lock.acquire(timeout=LOOKUP_TIMEOUT_SECONDS):
        raise Unavailable("the database does not answer; nothing was sold: retry with the same key")
    try:
        if is_cached(product):  # another thread has looked it up meanwhile
            return
        if not _is_on_sale(product):
            raise UnknownProduct
        _products.add(product)
    finally:
        _lookup_lock.release()


def _is_on_sale(product: str) -> bool:
    """Query whether the product is on sale, and return the connection to the pool."""
    try:
        return Product.objects.filter(name=product, sale__isnull=False).exists()
    finally:
        if not connection.in_atomic_block:  # a TestCase's transaction goes on
            connection.close()
