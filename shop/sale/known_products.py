"""A cache of the products that exist, read before anything is stored under a product's name.

A lock, a fence and a ZooKeeper node outlive the request that names them, so an invented name must
not create any. And no buyer may occupy a connection of the pool while it waits for a lock. So this
process looks up a new name once, returns the connection to the pool, and caches the name. Unknown
names are not cached, because a product can be added at any moment.
"""

import threading

from django.db import connection

from shop.errors import Unavailable, UnknownProduct
from shop.models import Product

#: Time for which a thread waits for another thread's lookup: longer than a connect timeout.
LOOKUP_TIMEOUT_SECONDS = 8.0

#: Also products that are not on sale, because a buyer's earlier order must be found after the sale.
_known_products: set[str] = set()
_lookup_lock = threading.Lock()


def is_cached(product: str) -> bool:
    """Return whether the product is cached, so that no query is needed."""
    return product in _known_products


def require_existing_product(product: str) -> None:
    """Raise UnknownProduct if the product does not exist. Otherwise cache its name.

    Only one thread at a time queries the database: requests for invented products occupy at most
    one connection of the pool. Raises Unavailable if the database is too slow.
    """
    if is_cached(product):
        return
    if not _lookup_lock.acquire(timeout=LOOKUP_TIMEOUT_SECONDS):
        raise Unavailable("the database does not answer; nothing was sold: retry with the same key")
    try:
        if is_cached(product):  # another thread has looked it up meanwhile
            return
        if not _exists(product):
            raise UnknownProduct
        _known_products.add(product)
    finally:
        _lookup_lock.release()


def _exists(product: str) -> bool:
    """Return whether the product exists. The database connection goes back to the pool."""
    try:
        return Product.objects.filter(name=product).exists()
    finally:
        if not connection.in_atomic_block:  # a test's transaction must continue
            connection.close()
