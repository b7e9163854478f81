"""A limit on the number of purchases in this process. Further buyers are told to retry later.

A purchase occupies a seat in the waiting room from its beginning to its end.

SHOP_MAX_PURCHASES limits all purchases, so that pages and health checks always find a free thread.
SHOP_MAX_WAITING limits the purchases of one product, so that a product in high demand leaves seats
for other products: while one purchase of the product runs, at most SHOP_MAX_WAITING further
purchases wait for a lock in Redis, for a row, or to retry after a conflict.

Each process counts only its own purchases; a common count would cost each buyer a round trip to
another server. So n nodes of m processes have n x m times as many seats.
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

#: Number of refused buyers that are told to retry in the same second. With 1,000 retries a second,
#: the process would spend all its time on refusing buyers.
RETRIES_PER_SECOND = 100
#: The longest time after which a refused buyer is told to retry.
LONGEST_RETRY_AFTER_SECONDS = 30

#: Product -> number of this process's purchases that have a seat.
purchases_under_way: Counter[str] = Counter()
_last_retry_at = 0.0  # the last time assigned to a refused buyer, by the monotonic clock
_mutex = threading.Lock()


@contextmanager
def occupy_seat(product: str) -> Iterator[None]:
    """Occupy a seat for a block. A purchase needs a seat, and this process has a limited number.

    Raises WaitingRoomFull if all seats are occupied. This never waits, so it may be used in an
    event loop, too.
    """
    max_waiting = settings.SHOP_MAX_WAITING or sys.maxsize
    max_purchases = settings.SHOP_MAX_PURCHASES or sys.maxsize
    with _mutex:
        # One purchase of the product does not wait, because it has the lock.
        waiting_count = purchases_under_way[product] - 1
        is_product_full = waiting_count >= max_waiting
        if is_product_full or purchases_under_way.total() >= max_purchases:
            raise WaitingRoomFull(seconds=_assign_retry_seconds())
        purchases_under_way[product] += 1
    try:
        yield
    finally:
        with _mutex:
            purchases_under_way[product] -= 1
            if not purchases_under_way[product]:
                del purchases_under_way[product]  # otherwise the dict would grow with each product


def _assign_retry_seconds() -> int:
    """Return after how many seconds a refused buyer should retry.

    Each buyer gets a later time than the buyer before, so that they do not all retry at once. No
    time is later than LONGEST_RETRY_AFTER_SECONDS from now. The caller holds `_mutex`.
    """
    global _last_retry_at
    now = monotonic()
    earliest = max(now, _last_retry_at) + 1 / RETRIES_PER_SECOND
    _last_retry_at = min(earliest, now + LONGEST_RETRY_AFTER_SECONDS)
    return ceil(_last_retry_at - now)
