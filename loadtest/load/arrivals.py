"""The open model: buyers arrive at their times, whether or not those before them were answered.

In the closed model a client that waits for its answer sends nothing meanwhile. A shop that stalls
is then asked less, and the buyers who would have come in that time are missing from the figures
(coordinated omission). Here each buyer's time to answer counts from when it was to arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

from loadtest.load.plan import CONSTANT

#: The longest sleep, in seconds: the end of the run is noticed within it.
NAP = 0.1


def offsets(
    rate: float, kind: str, chance: Random, *, share: int = 0, shares: int = 1
) -> Iterator[float]:
    """Seconds from the start to each arrival, endlessly, for one of several worker processes.

    rate    arrivals per second of all workers together
    kind    EXPONENTIAL: a Poisson process: random arrivals, independent of each other;
            CONSTANT: one every 1 / rate seconds
    share   which of `shares` workers this is: together they make `rate`
    """
    at, number = 0.0, 0
    while True:
        if kind == CONSTANT:
            number += 1
            at = (share + 1 + (number - 1) * shares) / rate
        else:
            at += chance.expovariate(rate / shares)
        yield at


@dataclass
class OpenModel:
    """Starts a purchase at each arrival and never waits for one.

    cap          the most purchases under way; whoever arrives above it is turned away, and a run
                 in which that happened did not measure its rate
    clock        seconds, monotonic
    sleep        waits so many seconds, and lets purchases go on meanwhile
    spawn        runs a function beside this one
    """

    cap: int
    clock: Callable[[], float]
    sleep: Callable[[float], object]
    spawn: Callable[[Callable[[], None]], object]
    in_flight: int = 0
    most: int = 0
    turned_away: int = 0

    def run(
        self,
        began: float,
        times: Iterable[float],
        buy: Callable[[int, float], None],
        ended: Callable[[], bool],
    ) -> None:
        """Start a purchase at each of `times` (seconds after `began`), until it has ended.

        buy  is given the number of the arrival and when it was to be, however late it is
        """
        for number, offset in enumerate(times):
            intended = began + offset
            while not ended() and (left := intended - self.clock()) > 0:
                self.sleep(min(left, NAP))
            if ended():
                return
            if self.in_flight >= self.cap:
                self.turned_away += 1
                self.sleep(0)  # answers are read meanwhile
                continue
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
            self.spawn(partial(self._serve, buy, number, intended))
            self.sleep(0)

    def _serve(self, buy: Callable[[int, float], None], number: int, intended: float) -> None:
        try:
            buy(number, intended)
        finally:
            self.in_flight -= 1
