"""Random sales of a simulated shop with a correct lock break no rule.

The buyers take turns at random, and every turn is recorded. Everything happens that may happen in a
correct shop: answers are lost, holders are killed at any step, servers are unreachable, and the
fence refuses a paused holder whose lease has ended. None of that is a violation.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from loadtest.tests.history_builder import HistoryBuilder


class Killed(Exception):
    """The process that served a request was killed."""


class FencedOff(Exception):
    """A newer holder has claimed the product; nothing was sold."""


@dataclass
class CorrectShop:
    """A simulated sale, recorded in `history`.

    pauses   whether a holder may be paused past its lease, so that holds overlap
    holder   the fence of the present lease; None if there is none
    writing  whether a purchase holds the product's row lock
    """

    random: Random
    stock: int
    buyers: int
    pauses: bool
    now: float = 0.0
    fence: int = 0
    claimed: int = 0
    holder: int | None = None
    left: int = 0
    writing: bool = False
    order_of: dict[str, int] = field(default_factory=dict)
    history: HistoryBuilder = field(default_factory=HistoryBuilder)

    def run(self) -> HistoryBuilder:
        """Let every buyer buy, and return the history."""
        self.left = self.history.stock = self.stock
        buyers = [
            self._buyer(f"run/pause/token/buyer-{number:02}") for number in range(self.buyers)
        ]
        while buyers:
            buyer = self.random.choice(buyers)
            self.now += self.random.random() * 5
            try:
                next(buyer)
            except StopIteration:
                buyers.remove(buyer)
        return self.history

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def _buyer(self, key: str) -> Iterator[None]:
        """Repeat a request with the same key until an answer is final, or give up without one."""
        while True:
            self.history.ask(self.now, key)
            yield
            if self._chance(0.1):
                self.history.answer(self.now, key, self.random.choice(("unavailable", "busy")))
                continue
            pid = self.random.randrange(10, 14)
            try:
                order = yield from self._serve(key, {"node": "AB"[pid % 2], "pid": pid})
            except Killed:
                yield
                if self._chance(0.5):
                    self.history.answer(self.now, key, "unknown")
                if self._chance(0.3):
                    return
                continue
            except FencedOff:
                self.history.answer(self.now, key, "lost")
                continue
            yield
            if self._chance(0.1):
                self.history.answer(self.now, key, "unknown")  # the reply was cut
                continue
            self.history.answer(self.now, key, "sold" if order else "sold_out", order)
            return

    def _serve(self, key: str, where: dict[str, Any]) -> Generator[None, None, int | None]:
        """Serve one request. Return the number of the order, or None for sold out."""
        asked_at = self.now
        while self.holder is not None:
            yield
        self.fence += 1
        fence = self.holder = self.fence
        self.history.acquire(asked_at, self.now, key, fence, **where)
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
            self.history.read(self.now, key, amount, **where)
            yield from self._danger(fence, may_pause=False)
            if key not in self.order_of and amount:
                self.order_of[key] = self.history.commit(self.now, key, amount, fence, **where)
                self.now += 1
                self.left -= 1
        finally:
            self.writing = False
        yield from self._danger(fence)
        yield from self._release(key, fence, where)
        return self.order_of.get(key)

    def _danger(self, fence: int, *, may_pause: bool = True) -> Iterator[None]:
        """Let another buyer take a turn, and perhaps kill or pause the holder.

        may_pause  False between claim and commit: there a pause would only make all other buyers
                   wait for the row lock
        """
        yield
        if self._chance(0.05):
            self._lose_lock(fence)
            raise Killed
        if self.pauses and may_pause and self._chance(0.3):
            self._lose_lock(fence)
            for _ in range(self.random.randrange(30)):
                yield

    def _release(self, key: str, fence: int, where: dict[str, Any]) -> Iterator[None]:
        outcome = "released" if self.holder == fence else "expired"
        self.history.release(self.now, key, outcome, **where)
        self.now += 1
        self._lose_lock(fence)
        yield

    def _lose_lock(self, fence: int) -> None:
        if self.holder == fence:
            self.holder = None


def random_sales(*, pauses: bool) -> Iterator[tuple[int, HistoryBuilder]]:
    """Yield a hundred sales, each with its seed."""
    for seed in range(100):
        chance = Random(seed)
        stock = chance.randint(1, 6)
        buyers = chance.randint(1, 12)
        yield seed, CorrectShop(chance, stock, buyers, pauses).run()


def expected_verdict(sale: HistoryBuilder) -> str:
    """Return `exact`, or `unknown` if no buyer bought or one has no final answer."""
    served = all(request.outcome in {"sold", "sold_out"} for request in sale.last_requests.values())
    return "exact" if sale.orders and served else "unknown"


@pytest.mark.parametrize("pauses", [False, True])
def test_correct_shop_breaks_no_rule(pauses: bool) -> None:
    """If holders are paused, the holds overlap, and the fence still keeps the sales exact."""
    overlap_count = 0
    for seed, sale in random_sales(pauses=pauses):
        judgement = sale.judge()
        assert set(judgement.violations) <= {"overlap"}, seed
        assert judgement.verdict == expected_verdict(sale), seed
        assert judgement.recovered_orders == {
            order["key"]: order["order"]
            for order in sale.orders
            if sale.last_requests[order["key"]].outcome != "sold"
        }, seed
        overlap_count += bool(judgement.violations)
    if pauses:
        assert overlap_count > 50
    else:
        assert overlap_count == 0
