"""A shop whose lock works, in one thread: buyers take turns at random, and every turn is told.

What may go wrong in a correct shop goes wrong: answers get lost, holders are killed at any step,
servers are unreachable, and a paused holder that outlived its lease is refused by its fence. None
of that is a violation.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from loadtest.tests.happenings import Happenings


class Killed(Exception):
    """The process that served a request is gone."""


class FencedOff(Exception):
    """A later holder has been here; nothing was sold."""


@dataclass
class CorrectShop:
    """Simulates one sale, and keeps what happened in `told_of`.

    pauses  whether a holder may lose its lease while it is paused, so that holds overlap
    """

    random: Random
    stock: int
    buyers: int
    pauses: bool = False
    now: float = 0.0
    fence: int = 0
    claimed: int = 0
    holder: int | None = None  # the fence of the lease that is on
    left: int = 0
    writing: bool = False  # somebody has the row lock of the product
    order_of: dict[str, int] = field(default_factory=dict)
    told_of: Happenings = field(default_factory=Happenings)

    def run(self) -> Happenings:
        """Let every buyer buy; what happened."""
        self.left = self.told_of.stock = self.stock
        buyers = [self._buyer(f"run/pause/token/buyer-{n:02}") for n in range(self.buyers)]
        while buyers:
            buyer = self.random.choice(buyers)
            self.now += self.random.random() * 5
            try:
                next(buyer)
            except StopIteration:
                buyers.remove(buyer)
        return self.told_of

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def _buyer(self, key: str) -> Iterator[None]:
        """Ask with the same key until there is an answer that stands, or give up without one."""
        while True:
            self.told_of.asks(self.now, key)
            yield
            if self._chance(0.1):
                self.told_of.answered(self.now, key, self.random.choice(("unavailable", "busy")))
                continue
            pid = self.random.randrange(10, 14)
            try:
                order = yield from self._serve(key, {"node": "AB"[pid % 2], "pid": pid})
            except Killed:
                yield
                if self._chance(0.5):
                    self.told_of.answered(self.now, key, "unknown")
                if self._chance(0.3):
                    return
                continue
            except FencedOff:
                self.told_of.answered(self.now, key, "lost")
                continue
            yield
            if self._chance(0.1):
                self.told_of.answered(self.now, key, "unknown")  # the reply was cut
                continue
            self.told_of.answered(self.now, key, "sold" if order else "sold_out", order)
            return

    def _serve(self, key: str, where: dict[str, Any]) -> Generator[None, None, int | None]:
        """One request: the order's number, or None for sold out."""
        asked = self.now
        while self.holder is not None:
            yield
        self.fence += 1
        fence = self.holder = self.fence
        self.told_of.acquires(asked, self.now, key, fence, **where)
        yield from self._danger(fence)
        while self.writing:
            yield
        if fence < self.claimed:
            yield from self._release(key, fence, where)
            raise FencedOff
        self.claimed = fence
        self.writing = True
        try:
            amount = self.left
            self.told_of.reads(self.now, key, amount, **where)
            yield from self._danger(fence, may_pause=False)
            if key not in self.order_of and amount:
                self.order_of[key] = self.told_of.commits(self.now, key, amount, fence, **where)
                self.now += 1
                self.left -= 1
        finally:
            self.writing = False
        yield from self._danger(fence)
        yield from self._release(key, fence, where)
        return self.order_of.get(key)

    def _danger(self, fence: int, *, may_pause: bool = True) -> Iterator[None]:
        """A turn for others. The holder may be killed here, or be paused until its lease is over
        (not between claim and commit: there its row lock stops the others as well)."""
        yield
        if self._chance(0.05):
            self._let_go(fence)
            raise Killed
        if self.pauses and may_pause and self._chance(0.3):
            self._let_go(fence)
            for _ in range(self.random.randrange(30)):
                yield

    def _release(self, key: str, fence: int, where: dict[str, Any]) -> Iterator[None]:
        ours = self.holder == fence
        self.told_of.releases(self.now, key, "released" if ours else "expired", **where)
        self.now += 1
        self._let_go(fence)
        yield

    def _let_go(self, fence: int) -> None:
        if self.holder == fence:
            self.holder = None
