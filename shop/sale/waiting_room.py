"""A limit on the purchases in this process. Buyers above it are told to come back later.

A purchase occupies a seat from its beginning to its end.

SHOP_MAX_PURCHASES limits all purchases, so that pages and health checks always find a free thread.
SHOP_MAX_WAITING limits those of one product, so that a hot product leaves room for other products:
while one buyer sells, at most that many others wait for a lock in Redis, for a row, or to retry
after a conflict.

Each process counts only its own buyers; a common count would cost each buyer a round trip to
another server. So n nodes of m processes admit n x m times as many.
"""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from time import monotonic

from django.conf import settings

from shop.errors import WaitingRoomFull

#: Number of refused buyers that are told to come back in the same second. If 1,000 came back every
#: second, the process would only refuse buyers.
RETRIES_PER_SECOND = 100
#: The longest time after which a refused buyer is told to come back.
LONGEST_RETRY_AFTER_SECONDS = 30

#: Product -> number of this process's purchases that have a seat.
purchases_under_way: Counter[str] = Counter()
_last_retry_at = 0.0  # the last time assigned to a refused buyer, by the monotonic clock
_mutex = threading.Lock()


@contextmanager
def occupy_seat(product: str) -> Iterator[None]:
    """Count a purchase until the block ends. Raises WaitingRoomFull if too many are under way.

    This never waits, so it may be used in an event loop, too.
    """
    max_waiting = settings.SHOP_MAX_WAITING or sys.maxsize
    max_purchases = settings.SHOP_MAX_PURCHASES or sys.maxsize
    with _mutex:
        # One purchase of the product has the lock, and the others wait for it.
        is_product_full = purchases_under_way[product] - 1 >= max_waiting
        if is_product_full or purchases_under_way.total() >= max_purchases:
            raise WaitingRoomFull(seconds=_assign_retry_seconds())
        purchases_under_way[product] += 1
    try:
        yield
    finally:
        with _mutex:
            purchases_under_way[product] -= 1
            if not purchases_under_way[product]:
                del purchases_under_way[product]  # a product without buyers takes no memory


def _assign_retry_seconds() -> int:
    """Choose a time at which a refused buyer should retry. Return it in seconds from now.

    Successive buyers get successive times, so that they do not all retry at once. No time is later
    than LONGEST_RETRY_AFTER_SECONDS from now. The caller holds `_mutex`.
    """
    global _last_retry_at
    now = monotonic()
    earliest = max(now, _last_retry_at) + 1 / RETRIES_PER_SECOND
    _last_retry_at = min(earliest, now + LONGEST_RETRY_AFTER_SECONDS)
    return ceil(_last_retry_at - now)
