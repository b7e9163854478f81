"""Limits how many purchases may wait in this process; the rest are told to come back later.

SHOP_MAX_PURCHASES bounds all of them: with it pages and health checks always find a free thread.
SHOP_MAX_WAITING bounds those of one product, so that a hot one leaves room for the others: that
many wait while one sells, whatever the strategy waits for (a lock in Redis, a row, a conflict
that is tried again). Processes do not count each other's buyers: that would cost each buyer one
more round trip, to a server that has to be there. n nodes of m processes let in n x m times more.
"""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from time import monotonic

from django.conf import settings

from shop.errors import Full

#: How many of the refused are asked to come back in each second: if 1,000 came back every second,
#: the process would have time for nothing but to refuse them.
COME_BACK = 100
#: Seconds after which everybody may come back.
LATEST = 30


inside: Counter[str] = Counter()  # purchases under way in this process, by product
_next = 0.0  # when the next one who is refused may come back, by this machine's clock
_mutex = threading.Lock()


@contextmanager
def place(product: str) -> Iterator[None]:
    """A place until the block ends, however it does. Raises Full when all are taken. Never waits
    for anybody, so that an event loop may use it too."""
    waiting = settings.SHOP_MAX_WAITING or sys.maxsize
    purchases = settings.SHOP_MAX_PURCHASES or sys.maxsize
    with _mutex:
        if inside[product] > waiting or inside.total() >= purchases:
            raise Full(seconds=_wait())
        inside[product] += 1
    try:
        yield
    finally:
        with _mutex:
            inside[product] -= 1
            if not inside[product]:
                del inside[product]  # a product that nobody asks for takes no memory


def _wait() -> int:
    """Seconds until a buyer who is refused now should come back."""
    global _next
    now = monotonic()
    _next = min(max(now, _next) + 1 / COME_BACK, now + LATEST)
    return ceil(_next - now)
