"""At most so many purchases of a product wait in this process; who comes beyond that comes later.

Off unless SHOP_MAX_WAITING says how many. The bound is this process's own: SHOP_MAX_WAITING wait
beside one that sells, whatever the strategy waits for (a lock in Redis, a row, a conflict that is
tried again). Processes do not count each other's buyers: that would cost each buyer one more round
trip, to a server that has to be there. So n nodes of m processes let in at most
n x m x (SHOP_MAX_WAITING + 1).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

from django.conf import settings

from shop.errors import Full

#: Who is refused is asked to come back at a moment of their own, so many in a second: if 1,000 came
#: back every second, the process would have time for nothing but to refuse them.
COME_BACK = 100
#: Seconds after which everybody may come back.
LATEST = 30


class WaitingRoom:
    """Counts the purchases of each product. Never blocks, so that an event loop may use it too.

    clock  monotonic seconds
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._mutex = threading.Lock()
        self._inside: dict[str, int] = {}
        self._clock = clock
        self._next = 0.0  # when the next one who is refused may come back

    def inside(self, product: str) -> int:
        """How many purchases of this product are under way here."""
        return self._inside.get(product, 0)

    @contextmanager
    def place(self, product: str, *, waiting: int) -> Iterator[None]:
        """A place for as long as the block lasts, however it ends.

        waiting  how many may wait beside one that sells

        Raises Full when all places are taken.
        """
        with self._mutex:
            inside = self._inside.get(product, 0)
            if inside > waiting:
                raise Full(seconds=self._wait())
            self._inside[product] = inside + 1
        try:
            yield
        finally:
            with self._mutex:
                left = self._inside[product] - 1
                if left:
                    self._inside[product] = left
                else:
                    del self._inside[product]  # a product that nobody asks for takes no memory

    def _wait(self) -> int:
        """Seconds until whoever is refused now should come back."""
        now = self._clock()
        self._next = min(max(now, self._next) + 1 / COME_BACK, now + LATEST)
        return ceil(self._next - now)


#: This process's.
room = WaitingRoom()


@contextmanager
def admitted(product: str) -> Iterator[None]:
    """Run the block if SHOP_MAX_WAITING allows another purchase of the product. Raises Full."""
    if not settings.SHOP_MAX_WAITING:
        yield
        return
    with room.place(product, waiting=settings.SHOP_MAX_WAITING):
        yield
