"""What a load run measures, and when its measurement has failed. Time is made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadtest.load.conductor import COOL_DOWN, SILENCE, Conductor
from loadtest.load.figures import Measured, Sale
from loadtest.load.plan import Plan


def plan(**more: Any) -> Plan:
    given: dict[str, Any] = {"products": ["load-001"], "sales": [1], "seconds": 10.0, **more}
    return Plan(id="run", lock="redis", hosts=["http://127.0.0.1:1"], **given)


def batch(*sales: Sale, worker: int = 0, **more: Any) -> dict[str, Any]:
    common = {"worker": worker, "turned_away": 0, "most": 1, "oldest": None, "finished": False}
    return {**common, "sales": [list(one) for one in sales], **more}


def bought(at: float, outcome: str = "sold", product: int = 0) -> Sale:
    return Sale(product, 0, 0, at, at, at, outcome, 1)


class Run:
    """A conductor whose workers send what `send` says each time it looks."""

    def __init__(self, plan: Plan, send: Callable[[float], list[dict[str, Any]]]) -> None:
        self.now = 0.0
        self.ended_at: float | None = None
        self.send = send
        self.conductor = Conductor(plan, self.sleep, self.end, clock=lambda: self.now)
        self.conductor.spawned = True

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for one in self.send(self.now):
            self.conductor.take({**one, "finished": self.ended_at is not None})

    def end(self) -> None:
        self.ended_at = self.now

    def result(self) -> Measured:
        return self.conductor.run()


def test_the_warm_up_is_sold_in_and_not_measured() -> None:
    run = Run(plan(warm_up=2.0), lambda now: [batch(bought(now))])
    found = run.result()
    assert (found.why, found.window.by) == ("", "time")
    assert found.window.begin == pytest.approx(2.0)
    assert found.window.seconds == pytest.approx(10.0, abs=0.3)
    assert found.sales[0].answered < 2.0, "the judge knows of it"


def test_a_run_ends_when_all_products_are_sold_out_and_until_the_last_unit() -> None:
    def send(now: float) -> list[dict[str, Any]]:
        left = [bought(now, "sold" if now < 4 + place else "sold_out", place) for place in (0, 1)]
        return [batch(*left)]

    run = Run(plan(products=["load-001", "load-002"], sales=[1, 2]), send)
    found = run.result()
    assert (found.why, found.window.by) == ("", "stock")
    assert found.window.end == pytest.approx(5.0, abs=0.3), "the second product's last unit"
    assert run.ended_at is not None
    assert run.ended_at < 6, "and not after the 10 s"


def test_a_sale_that_ran_out_in_the_warm_up_measured_nothing() -> None:
    found = Run(plan(), lambda now: [batch(bought(now, "sold_out"))]).result()
    assert "all was sold before the measurement began" in found.why


def test_a_run_that_turned_buyers_away_failed_and_says_what_to_do() -> None:
    run = Run(
        plan(arrivals_per_second=900.0, cap=50), lambda now: [batch(turned_away=int(now > 3))]
    )
    found = run.result()
    assert found.why.startswith("50 buyers waited for an answer at a time")
    assert "lower --arrivals-per-second" in found.why
    assert found.turned_away == 1
    assert run.ended_at == pytest.approx(3.25, abs=0.3)


def test_a_worker_that_falls_silent_is_lost_and_the_run_with_it() -> None:
    def send(now: float) -> list[dict[str, Any]]:
        return [batch(worker=0), *([batch(worker=1)] if now < 2 else [])]

    found = Run(plan(locust_workers=2, seconds=60.0), send).result()
    assert found.why == "Locust's worker 1 was lost: see the log of the run"
    assert found.window.seconds <= SILENCE + 3


def test_a_worker_that_never_came_fails_the_run() -> None:
    found = Run(plan(locust_workers=2, seconds=1.0), lambda now: [batch(worker=0)]).result()
    assert "not all workers finished within" in found.why


def test_clients_that_are_not_started_in_time_fail_the_run() -> None:
    run = Run(plan(), lambda now: [batch()])
    run.conductor.spawned = False
    assert "not all clients started within" in run.result().why


def test_buyers_go_on_coming_until_those_who_were_measured_are_answered() -> None:
    """Without a queue behind them they would be answered sooner than all before them."""

    def send(now: float) -> list[dict[str, Any]]:
        return [batch(bought(now), oldest=10.5 if now < 15 else now)]

    run = Run(plan(), send)
    found = run.result()
    assert found.window.end == pytest.approx(11.0, abs=0.3)
    assert run.ended_at == pytest.approx(15.0, abs=0.6)


def test_a_buyer_who_is_never_served_does_not_make_them_come_forever() -> None:
    run = Run(plan(), lambda now: [batch(oldest=2.0)])
    assert run.result().window.end == pytest.approx(11.0, abs=0.3)
    assert run.ended_at == pytest.approx(11 + COOL_DOWN, abs=0.6)
