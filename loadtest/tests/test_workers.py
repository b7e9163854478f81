"""The rush in several processes of Locust: --processes, --master with --worker, and the web UI."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgpack
import psutil
import pytest
import zmq

from loadtest.judge.verdict import EXIT_CODES
from loadtest.rush.locust_process import Buyers
from loadtest.stack.stack import ROOT, Stack
from loadtest.tests.steered import Steered, cart_shop, until


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cart_shop(tmp_path_factory.mktemp("shop")) as address:
        yield address


def test_one_command_makes_its_workers_and_ends_with_the_verdict(tmp_path: Path, host: str) -> None:
    history = tmp_path / "buyers.jsonl"
    with Steered(tmp_path, host) as locust:
        master = locust.headless("--processes", "2", "--history", str(history), buyers=9)
        assert master.wait(60) == 0, locust.log.read_text()
        run = locust.run()
        pids = {path.read_text() for path in tmp_path.glob("buy-*")}
    assert (run["verdict"], run["orders"], run["arrived"]) == ("exact", 3, 9)
    assert (len(pids), str(master.pid) in pids) == (2, False)
    first, second = run["locust_workers"]
    assert (first["buyers"], second["buyers"]) == (5, 4)
    for worker in (first, second):
        assert worker["same_clock"]
        assert abs(worker["clock_ahead_ms"]) <= worker["clock_error_ms"], "one machine, one clock"
        assert worker["last_ms"] >= worker["first_ms"] >= 0, "nobody asked before the moment"
    asked = [json.loads(line) for line in history.read_text().splitlines()]
    keys = {event["attempt"] for event in asked if event["type"] == "invoke"}
    assert keys == {f"{run['attempts']}/buyer-{number}" for number in range(9)}
    assert len([event for event in asked if event["type"] != "invoke"]) == 9


def test_the_workers_of_a_master_end_with_0_whatever_the_verdict(tmp_path: Path, host: str) -> None:
    with Steered(tmp_path, host, buy="1") as locust:
        master = locust.headless("--master", "--expect-workers", "2", "-t", "6s")
        workers = locust.workers()
        assert master.wait(60) == EXIT_CODES["unknown"], locust.log.read_text()
        assert [worker.wait(30) for worker in workers] == [0, 0]
        run = locust.run()
    assert (run["verdict"], run["stopped"], run["never_answered"]) == ("unknown", True, 4)


def test_sigterm_leaves_no_process_and_no_verdict(tmp_path: Path, host: str) -> None:
    with Steered(tmp_path, host, buy="1") as locust:
        master = locust.headless("--processes", "2")
        locust.until_there("buy", 1)
        workers = psutil.Process(master.pid).children(recursive=True)
        assert len(workers) == 2
        master.send_signal(signal.SIGTERM)
        assert master.wait(60) == EXIT_CODES["unknown"], locust.log.read_text()
        _, left = psutil.wait_procs(workers, timeout=30)
        assert left == []


def test_a_worker_that_joins_in_a_rush_disturbs_nobody_and_is_in_the_next_one(
    tmp_path: Path, host: str
) -> None:
    with Steered(tmp_path, host, buy="0") as locust:
        locust.page()
        locust.workers()
        locust.wait_for_workers(2)
        locust.swarm()
        locust.until_state(arrived=8, answered=4)
        locust.workers(1)
        locust.wait_for_workers(3)
        locust.go_on("buy")
        first = locust.rush(1)
        locust.wait_for_workers(3)
        locust.swarm()
        second = locust.rush(2)
    for run, workers in ((first, 2), (second, 3)):
        assert (run["verdict"], run["arrived"], run["orders"]) == ("exact", 8, 3)
        assert len(run["locust_workers"]) == workers


def test_a_rush_that_was_stopped_knows_who_had_asked_and_the_next_one_runs(
    tmp_path: Path, host: str
) -> None:
    with Steered(tmp_path, host, buy="1") as locust:
        locust.page()
        locust.workers()
        locust.wait_for_workers(2)
        locust.swarm()
        locust.until_state(arrived=8, answered=4)
        locust.until_there("buy", 1)
        locust.post("/stop", x="")
        stopped = locust.rush(1)
        assert (stopped["verdict"], stopped["stopped"]) == ("unknown", True)
        assert (stopped["never_asked"], stopped["never_answered"]) == (0, 4)
        locust.go_on("buy")
        locust.wait_for_workers(2)
        locust.swarm()
        assert locust.rush(2)["verdict"] == "exact"


def test_a_rush_that_is_started_while_the_last_one_is_still_stopped_runs_to_its_verdict(
    tmp_path: Path, host: str
) -> None:
    """Locust's master looks once a second whether its workers have stopped."""
    with Steered(tmp_path, host) as locust:
        locust.page()
        locust.workers()
        locust.wait_for_workers(2)
        for number in (1, 2, 3):
            locust.swarm()
            run = locust.rush(number)
            assert (run["verdict"], run["arrived"], run["orders"]) == ("exact", 8, 3)


def test_without_a_worker_nothing_is_started_and_it_says_what_is_missing(
    tmp_path: Path, host: str
) -> None:
    with Steered(tmp_path, host) as locust:
        locust.page()
        until(lambda: locust.get("/runs/state"))
        with pytest.raises(OSError, match="409"):
            locust.swarm()
        assert locust.get("/runs/state")["number"] == 0


def test_a_worker_is_never_sent_the_token_that_opens_sales(tmp_path: Path, host: str) -> None:
    """Whoever reaches the master's port may call itself a worker: here one that only listens."""
    secret = "a-token-that-opens-sales"
    with Steered(tmp_path, host) as locust, zmq.Context() as context:
        locust.headless("--master", "--expect-workers", "1", "--restock-token", secret)
        with context.socket(zmq.DEALER) as spy:
            spy.setsockopt(zmq.IDENTITY, b"spy_1")
            spy.setsockopt(zmq.LINGER, 0)
            spy.setsockopt(zmq.RCVTIMEO, 60_000)
            spy.connect(f"tcp://127.0.0.1:{locust.port}")
            spy.send(msgpack.dumps(("client_ready", -1, "spy_1")))
            heard = [spy.recv()]
            while b"spawn" not in heard[-1]:
                heard.append(spy.recv())
    assert any(b"parsed_options" in one for one in heard)
    assert not any(secret.encode() in one for one in heard)


def test_the_buyers_of_make_demo_stay_in_their_workers_from_one_rush_to_the_next() -> None:
    with (
        tempfile.TemporaryFile() as log,
        Stack(nodes=2, workers=1, threads=30, log=log) as stack,
        Buyers(stack, log=log, stay=True, workers=2) as buyers,
    ):
        buyers.wait_until_ready()
        assert buyers._process.process is not None
        processes = psutil.Process(buyers._process.process.pid).children(recursive=True)
        runs = [
            buyers.rush(lock=lock, buyers=60, stock=20, hold_ms=0, product="apple", deadline=60)
            for lock in ("none", "redis", "none")
        ]
        buyers.stop()
        _, left = psutil.wait_procs(processes, timeout=10)
    assert left == []
    assert [run["verdict"] for run in runs] == ["oversold", "exact", "oversold"]
    assert [run["arrived"] for run in runs] == [60] * 3
    assert all(len(run["locust_workers"]) == 2 for run in runs)


def test_a_busy_worker_may_be_silent_longer_than_locust_allows_from_the_first_moment_on() -> None:
    """Locust's 3 s are over while a worker starts a thousand buyers on a busy machine. It keeps its
    limit with each worker that connects: it has to be another one before there is a runner."""
    said = subprocess.run(
        [sys.executable, "-c",
         "import loadtest.locustfile, locust.runners; print(locust.runners.HEARTBEAT_LIVENESS)"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert said.stdout == "20\n", said.stderr
