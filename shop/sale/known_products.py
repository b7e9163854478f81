"""A cache of the products on sale, asked before anything is stored under a product's name.

A lock, a fence and a ZooKeeper node outlive the request that named them, so an invented name must
not create one. And no buyer may wait for a lock while it occupies a connection of the pool. So this
process looks up a new name once, returns the connection, and caches the name. It does not cache
that a name is unknown: a sale sells from the moment it is opened.
"""

import threading

from django.db import connection

from shop.errors import Unavailable, UnknownProduct
from shop.models import Product

#: How long a thread waits for another one's lookup: longer than a connection takes to fail.
LOOKUP_TIMEOUT_SECONDS = 8.0

_products: set[str] = set()  # stays after the sale was closed: the purchase checks again
_lookup = threading.Lock()


def is_cached(product: str) -> bool:
    """Return whether the product is cached, so that no query is needed."""
    return product in _products


def require_on_sale(product: str) -> None:
    """Raise UnknownProduct if the product is not on sale.

    One thread of a process looks up at a time: invented names take one connection of the pool at
    most, and a rush for a new product asks once. Raises Unavailable if the database is too slow.
    """
    if is_cached(product):
        return
    if not _lookup.acquire(timeout=LOOKUP_TIMEOUT_SECONDS):
        raise Unavailable("the database does not answer; nothing was sold")
    try:
        if product in _products:
            return
        if not _is_on_sale(product):
            raise UnknownProduct
        _products.add(product)
    finally:
        _lookup.release()


def _is_on_sale(product: str) -> bool:
    try:
        return Product.objects.filter(name=product, sale__isnull=False).exists()
    finally:
        if not connection.in_atomic_block:
            connection.close()  # back to the pool
