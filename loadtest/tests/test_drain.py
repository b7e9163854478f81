"""The drain, which is the last phase of a fault: the remaining buyers buy.

There are also tests of calls that run in parallel, and of a node that a fault restarts.
"""

import itertools
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from loadtest.faults import fault_buyer, runner
from loadtest.faults.fault_buyer import FaultBuyer
from loadtest.faults.testbed import Testbed, run_in_parallel, wait_for
from loadtest.faults.trial import BUYERS, Trial
from loadtest.judge.history import History
from loadtest.stack.client import Shop


class SlowShop:
    """A shop that has one unit, and a clock that each answer moves forward by a second.

    The object stands in for the module `time`, because it has the method monotonic().
    """

    name = "B"

    def __init__(self) -> None:
        self.now = 0.0
        self.answer_numbers = itertools.count()
        self.lock = threading.Lock()

    def monotonic(self) -> float:
        return self.now

    def buy(self, **_: Any) -> tuple[int, dict[str, str]]:
        with self.lock:
            # During this time let_remaining_buyers_buy() reads the clock. It must not conclude that
            # the sale has stopped.
            time.sleep(0.03)
            self.now += 1.0
            is_first = next(self.answer_numbers) == 0
        return 200, {"outcome": "sold" if is_first else "sold_out"}


class FakeTrial:
    """A stand-in for a Trial, with the attributes that let_remaining_buyers_buy() uses."""

    ttl = 1.0

    def __init__(self, shop: SlowShop, history: History) -> None:
        self.testbed = SimpleNamespace(shop=lambda _: shop)
        self.history = history
        self.buyers: list[FaultBuyer] = []

    def add_buyer(self, name: str) -> FaultBuyer:
        buyer = FaultBuyer(
            self.history, attempt=f"run/fault/token/{name}", lock="token", product="p"
        )
        self.buyers.append(buyer)
        return buyer


def test_drain_waits_for_all_answers_on_a_slow_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the drain, the last phase of a fault, the remaining buyers of each trial buy.

    A trial is the sale of one strategy under the fault.

    Each answer takes a second of the shop's clock. The drain gives up a sale if no buyer is
    answered for some seconds. All answers together take longer, but the drain must not give up.
    """
    shop = SlowShop()
    for module in (runner, fault_buyer):
        monkeypatch.setattr(module, "time", shop)
    trial = FakeTrial(shop, History(tmp_path / "buyers.jsonl"))
    trial.add_buyer("victim")
    runner.let_remaining_buyers_buy([cast(Trial, trial)])
    outcomes = [buyer.first_outcome for buyer in trial.buyers]
    units = 1
    assert outcomes == ["sold"] * units + ["sold_out"] * (BUYERS - units)


def test_drain_does_not_wait_for_a_buyer_whose_thread_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A buyer's thread cannot record a request, and ends with an error.

    The drain, the last phase of a fault, waits until `is_done` is set for each buyer. So it must
    also be set for this buyer.
    """
    errors: list[object] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    history = History(tmp_path / "buyers.jsonl")
    monkeypatch.setattr(history, "record", Mock(side_effect=OSError("no space left")))
    shop = SlowShop()
    buyer = FakeTrial(shop, history).add_buyer("victim")
    buyer.start(cast(Shop, shop))
    assert buyer.is_done.wait(10)
    assert wait_for(lambda: errors, 10)


def test_run_in_parallel_limits_the_calls_that_run_at_once() -> None:
    """Six calls are made, and at any time at most two of them run."""
    two_calls_run = threading.Barrier(2, timeout=30)
    running_counts: list[int] = []
    lock = threading.Lock()
    running_count = 0
    finished_count = 0

    def run(_: int) -> None:
        nonlocal running_count, finished_count
        with lock:
            running_count += 1
            running_counts.append(running_count)
        two_calls_run.wait()  # returns only when two calls run at the same time
        with lock:
            running_count -= 1
            finished_count += 1

    run_in_parallel(range(6), run, max_threads=2)
    assert finished_count == 6
    assert max(running_counts) <= 2


def test_settings_of_a_fault_are_removed_if_the_node_fails_to_start() -> None:
    """A fault restarts a node with another DATABASE_URL, and the node does not start.

    The node's environment must not contain that URL afterwards, because repair() starts the node
    again.
    """
    node = Mock(environment={"WEB_THREADS": "8"}, start=Mock(side_effect=OSError("no memory")))
    testbed = SimpleNamespace(nodes=[node], _make_ttl_settings=dict)
    with pytest.raises(OSError, match="no memory"):
        Testbed.restart(cast(Testbed, testbed), 0, DATABASE_URL="postgresql://dead")
    assert node.environment == {"WEB_THREADS": "8"}
