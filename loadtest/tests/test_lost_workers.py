"""A worker of Locust is killed: before it arrived, before the release, in the rush, after its part.

Two workers with four buyers each, for three units. Worker 1 has those with odd numbers.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.judge.verdict import EXIT_CODES
from loadtest.tests.steered import Steered, cart_shop

#: Seconds until there is a verdict, at most.
VERDICT_WITHIN = 30.0
UNKNOWN = EXIT_CODES["unknown"]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cart_shop(tmp_path_factory.mktemp("shop")) as address:
        yield address


def test_killed_before_it_arrived_the_rush_is_refused(tmp_path: Path, host: str) -> None:
    with Steered(tmp_path, host, prepare="1") as locust:
        master = locust.headless("--master", "--expect-workers", "2")
        locust.workers()
        os.kill(locust.until_there("prepare", 1), signal.SIGKILL)
        killed_at = time.monotonic()
        assert master.wait(60) == UNKNOWN, locust.log.read_text()
        assert time.monotonic() - killed_at < VERDICT_WITHIN
        run = locust.run()
    assert run["verdict"] == "unknown"
    assert "is gone, and with it 4 of 8 buyers: nobody was released" in run["error"]
    assert "start it again" in run["error"]
    assert list(tmp_path.glob("buy-*")) == []


def test_killed_between_its_arrival_and_the_release_the_rush_is_refused_and_the_next_one_runs(
    tmp_path: Path, host: str
) -> None:
    with Steered(tmp_path, host, prepare="0") as locust:
        locust.page()
        locust.workers()
        locust.wait_for_workers(2)
        locust.swarm()
        locust.until_state(arrived=4)
        killed_at = time.monotonic()
        os.kill(locust.until_there("prepare", 1), signal.SIGKILL)
        refused = locust.rush(1)
        assert time.monotonic() - killed_at < VERDICT_WITHIN
        assert "nobody was released" in refused["error"]
        assert list(tmp_path.glob("buy-*")) == []

        locust.go_on("prepare")
        locust.workers(1)
        locust.wait_for_workers(2)
        locust.swarm()
        again = locust.rush(2)
    assert (again["verdict"], again["arrived"], again["orders"]) == ("exact", 8, 3)


def test_killed_in_mid_rush_its_buyers_have_no_answer_and_there_is_no_verdict(
    tmp_path: Path, host: str
) -> None:
    history = tmp_path / "buyers.jsonl"
    with Steered(tmp_path, host, buy="1") as locust:
        master = locust.headless("--master", "--expect-workers", "2", "--history", str(history))
        locust.workers()
        os.kill(locust.until_there("buy", 1), signal.SIGKILL)
        killed_at = time.monotonic()
        assert master.wait(60) == UNKNOWN, locust.log.read_text()
        assert time.monotonic() - killed_at < VERDICT_WITHIN
        run = locust.run()
    assert (run["verdict"], run["arrived"], run["orders"]) == ("unknown", 8, 3)
    assert run["never_answered"] == 4
    assert run["why"].startswith("worker 1 on ")
    assert "is gone, 4 of its buyers had no answer" in run["why"]
    asked = [line for line in history.read_text().splitlines() if '"invoke"' in line]
    assert len(asked) == 8, "those of the lost worker may have asked"


def test_killed_after_its_last_answer_the_verdict_stands(tmp_path: Path, host: str) -> None:
    with Steered(tmp_path, host, buy="0") as locust:
        locust.page()
        locust.workers()
        locust.wait_for_workers(2)
        locust.swarm()
        locust.until_state(arrived=8, answered=4)
        os.kill(locust.until_there("buy", 1), signal.SIGKILL)
        locust.wait_for_workers(1)
        locust.go_on("buy")
        run = locust.rush(1)
    assert (run["verdict"], run["orders"], run["never_answered"]) == ("exact", 3, 0)
    assert "lost" not in run


def test_a_worker_that_stands_still_is_lost_too(tmp_path: Path, host: str) -> None:
    """Its connection stays open; it does not answer before the release."""
    with Steered(tmp_path, host, prepare="0") as locust:
        locust.page()
        locust.workers()
        locust.wait_for_workers(2)
        locust.swarm()
        locust.until_state(arrived=4)
        os.kill(locust.until_there("prepare", 1), signal.SIGSTOP)
        stopped_at = time.monotonic()
        locust.go_on("prepare")
        refused = locust.rush(1)
        assert time.monotonic() - stopped_at < VERDICT_WITHIN
    assert "does not answer, and with it 4 of 8 buyers: nobody was released" in refused["error"]
