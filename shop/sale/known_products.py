"""A cache of the products that exist. A purchase reads it before it takes a lock.

Locks, fences and ZooKeeper nodes are named after a product, and outlive the request. So a request
for an invented product must not create any of them. And no buyer may occupy a connection of the
pool while it waits for a lock. Therefore a process looks up the name of a product once, returns the
connection to the pool, and caches the name. Unknown names are not cached, because a product can be
added at any moment.
"""

import threading

from django.db import connection

from shop.errors import Unavailable, UnknownProduct
from shop.models import Product

#: Time for which a thread waits for another thread's lookup: longer than a connect timeout.
LOOKUP_TIMEOUT_SECONDS = 8.0

#: Includes products that are not on sale: a repeated request must find its order after the sale.
_known_products: set[str] = set()
_lookup_lock = threading.Lock()


def is_cached(product: str) -> bool:
    """Return whether the product is cached, so that no query is needed."""
    return product in _known_products


def require_existing_product(product: str) -> None:
    """Raise UnknownProduct if the product is neither in the cache nor in the database.

    A product in the database is added to the cache. Only one thread at a time queries the database,
    so requests for invented products occupy at most one connection of the pool. Raises Unavailable
    if the database is too slow.
    """
    if is_cached(product):
        return
    if not _lookup_lock.acquire(timeout=LOOKUP_TIMEOUT_SECONDS):
        raise Unavailable("the database does not answer; nothing was sold: retry with the same key")
    try:
        if is_cached(product):  # another thread has looked the product up meanwhile
            return
        if not _is_in_database(product):
            raise UnknownProduct
        _known_products.add(product)
    finally:
        _lookup_lock.release()


def _is_in_database(product: str) -> bool:
    """Return whether the database has the product, and return the connection to the pool."""
    try:
        return Product.objects.filter(name=product).exists()
    finally:
        if not connection.in_atomic_block:  # a test's transaction must continue
            connection.close()
