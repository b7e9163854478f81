"""The open model: when buyers arrive, and that a stall of the shop cannot hide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice, takewhile
from random import Random
from statistics import mean, pstdev

import pytest

from loadtest.load.arrivals import OpenModel, offsets
from loadtest.load.figures import Sale, milliseconds
from loadtest.load.plan import CONSTANT, EXPONENTIAL
from loadtest.rush.measure import percentile


def first(count: int, kind: str, *, rate: float = 100, seed: int = 1, **shared: int) -> list[float]:
    return list(islice(offsets(rate, kind, Random(seed), **shared), count))


def test_constant_arrivals_come_one_every_nth_of_a_second() -> None:
    assert first(3, CONSTANT) == pytest.approx([0.01, 0.02, 0.03])


def test_exponential_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() -> None:
    times = first(20_000, EXPONENTIAL)
    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert mean(gaps) == pytest.approx(1 / 100, rel=0.03)
    assert pstdev(gaps) == pytest.approx(1 / 100, rel=0.05)


def test_the_same_seed_makes_the_same_arrivals_and_another_one_others() -> None:
    assert first(50, EXPONENTIAL) == first(50, EXPONENTIAL)
    assert first(50, EXPONENTIAL) != first(50, EXPONENTIAL, seed=2)


@pytest.mark.parametrize("kind", [CONSTANT, EXPONENTIAL])
def test_workers_make_the_whole_rate_together(kind: str) -> None:
    each = [offsets(100, kind, Random(n), share=n, shares=4) for n in range(4)]
    arrived = sum(len(list(takewhile(lambda at: at <= 50, times))) for times in each)
    assert arrived == pytest.approx(5_000, rel=0.06)


def test_constant_arrivals_of_workers_do_not_coincide() -> None:
    both = sorted(first(50, CONSTANT, share=0, shares=2) + first(50, CONSTANT, share=1, shares=2))
    assert both == pytest.approx(first(100, CONSTANT))


@dataclass
class FakeShop:
    """Serves one request at a time, in `takes` seconds, and stalls once. Time stands still but for
    `sleep`, so that a test of minutes takes no time.

    stalls  from this second on, for one second
    """

    takes: float = 0.001
    stalls: float = 2.0
    now: float = 0.0
    free: float = 0.0
    looks: int = 0
    sales: list[Sale] = field(default_factory=list)
    under_way: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def clock(self) -> float:
        self.looks += 1
        assert self.looks < 100_000, "it does not wait for the next arrival"
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for answered, end in [one for one in self.under_way if one[0] <= self.now]:
            self.under_way.remove((answered, end))
            end()

    def answered(self, sent: float) -> float:
        """When a request of this moment is answered."""
        begins = max(sent, self.free)
        if self.stalls <= begins < self.stalls + 1:
            begins = self.stalls + 1
        self.free = begins + self.takes
        return self.free

    def buy(self, number: int, intended: float) -> None:
        done = self.answered(self.now)
        self.sales.append(Sale(0, 0, number, intended, self.now, done, "sold", number))


def p99(shop: FakeShop) -> float:
    return percentile(milliseconds(shop.sales), 99)


def closed(shop: FakeShop, seconds: float) -> None:
    """One client that waits for each answer before it sends the next request."""
    while shop.now < seconds:
        shop.buy(len(shop.sales), shop.now)
        shop.sleep(shop.sales[-1].answered - shop.now)


def opened(shop: FakeShop, seconds: float, *, cap: int = 10_000, rate: float = 200) -> OpenModel:
    model = OpenModel(cap, shop.clock, shop.sleep, lambda run: run())
    model.run(0.0, offsets(rate, CONSTANT, Random(1)), shop.buy, lambda: shop.now >= seconds)
    return model


def test_a_stall_of_one_second_shows_in_the_p99_of_the_open_model() -> None:
    shop = FakeShop()
    opened(shop, 10)
    assert p99(shop) > 850, "one in ten of all buyers arrived in it"
    assert percentile(milliseconds(shop.sales), 50) < 10


def test_the_closed_model_hides_the_same_stall() -> None:
    shop = FakeShop()
    closed(shop, 10)
    assert p99(shop) < 10, "one request of thousands met it: that is the coordinated omission"


def test_the_time_to_answer_counts_from_the_intended_arrival_though_the_load_is_late() -> None:
    """Locust itself stops for a second: its buyers were to come all the same."""
    shop = FakeShop(stalls=1e9)
    nap = shop.sleep

    def sleep(seconds: float) -> None:
        nap(seconds + (1.0 if 2 <= shop.now < 3 else 0.0))

    model = OpenModel(10_000, shop.clock, sleep, lambda run: run())
    model.run(0.0, offsets(200, CONSTANT, Random(1)), shop.buy, lambda: shop.now >= 10)
    assert len(shop.sales) == pytest.approx(2000, abs=5), "nobody was left out"
    assert p99(shop) > 850


def test_buyers_above_the_cap_are_turned_away_and_counted() -> None:
    waiting: list[Callable[[], None]] = []
    shop = FakeShop()
    model = OpenModel(3, shop.clock, shop.sleep, waiting.append)
    model.run(0.0, [0.1, 0.2, 0.3, 0.4, 0.5], shop.buy, lambda: False)
    assert (model.in_flight, model.most, model.turned_away) == (3, 3, 2)
    for serve in waiting:
        serve()
    assert (model.in_flight, [one.number for one in shop.sales]) == (0, [0, 1, 2])


def test_a_purchase_that_raises_is_not_under_way_any_more() -> None:
    def fails(number: int, intended: float) -> None:
        raise ValueError("the shop is gone")

    shop = FakeShop()
    model = OpenModel(1, shop.clock, shop.sleep, lambda run: run())
    with pytest.raises(ValueError, match="gone"):
        model.run(0.0, [0.1], fails, lambda: False)
    assert model.in_flight == 0
