"""Which products are on sale, known before anything is kept under a product's name.

A lock, a fence, a ZooKeeper node outlive the request that named them: for a name that anybody made
up there must be none. And no buyer may wait for a lock with one of the pool's connections. So the
names that were found are remembered, a name that is new to this process is looked for in the
database, and the connection is given back at once. A name that was not found is not remembered: a
sale that is opened now sells now.
"""

import threading

from django.db import connection

from shop.errors import Unavailable, UnknownProduct
from shop.models import Product

#: Seconds to wait for others who look for a name: longer than a connection takes that fails.
LOOKING = 8.0

_known: set[str] = set()  # also after its sale was closed: the purchase checks again
_looking = threading.Lock()


def is_known(product: str) -> bool:
    """Whether require_on_sale would ask nobody."""
    return product in _known


def require_on_sale(product: str) -> None:
    """Raises UnknownProduct if there is no sale of it, Unavailable if the database is slow to say.

    One thread of a process looks at a time: invented names take one connection of the pool at most,
    and a rush for a product that is new here asks once.
    """
    if is_known(product):
        return
    if not _looking.acquire(timeout=LOOKING):
        raise Unavailable("the database does not answer; nothing was sold")
    try:
        if product in _known:
            return
        if not _is_on_sale(product):
            raise UnknownProduct
        _known.add(product)
    finally:
        _looking.release()


def _is_on_sale(product: str) -> bool:
    try:
        return Product.objects.filter(name=product, sale__isnull=False).exists()
    finally:
        if not connection.in_atomic_block:
            connection.close()  # back to the pool
