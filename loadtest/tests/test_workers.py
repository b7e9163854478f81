"""A rush whose buyers run in several worker processes of Locust.

Unless a test says otherwise, a master and two workers run eight buyers, who want three units.
Worker 0 has the buyers with even numbers, and worker 1 has the buyers with odd numbers.

HeldLocust (held_target.py) makes the buyers of one worker wait until the test releases them: with
prepare="1" those of worker 1 wait at the end of prepare(), and with buy="0" those of worker 0 wait
just before they send their purchase. When a buyer, waiting or not, gets there, it writes the pid of
its process to a file, such as buy-3.
"""

import json
import os
import signal
from pathlib import Path

import msgpack
import psutil
import zmq

from loadtest.judge.verdict import EXIT_CODES
from loadtest.tests.held_target import HeldLocust

#: Locust's exit code after a rush with the verdict `unknown`.
UNKNOWN_EXIT_CODE = EXIT_CODES["unknown"]


def read_buyer_pids(folder: Path) -> set[str]:
    """Return the pids of the workers whose buyers were ready to send their purchase."""
    return {path.read_text() for path in folder.glob("buy-*")}


def test_command_starts_workers_and_ends_with_the_verdict(tmp_path: Path, host: str) -> None:
    """Nine buyers run in two workers. The history has the request and the answer of each buyer."""
    history = tmp_path / "buyers.jsonl"
    with HeldLocust(tmp_path, host) as locust:
        master = locust.start_rush("--processes", "2", "--history", str(history), buyers=9)
        assert master.wait(60) == 0, locust.log_file.read_text()
        run = locust.take_result()
        pids = read_buyer_pids(tmp_path)
    assert (run["verdict"], run["orders"], run["arrived"]) == ("exact", 3, 9)
    assert len(pids) == 2
    assert str(master.pid) not in pids
    events = [json.loads(line) for line in history.read_text().splitlines()]
    keys = {event["attempt"] for event in events if event["type"] == "invoke"}
    assert keys == {f"{run['attempts']}/buyer-{number}" for number in range(9)}
    assert len([event for event in events if event["type"] != "invoke"]) == 9


def test_sigterm_stops_all_workers_and_the_rush_is_unknown(tmp_path: Path, host: str) -> None:
    """The master gets the signal while the buyers of worker 1 wait before their purchase."""
    with HeldLocust(tmp_path, host, buy="1") as locust:
        master = locust.start_rush("--processes", "2")
        locust.wait_for_buyers("buy", 1)
        workers = psutil.Process(master.pid).children(recursive=True)
        assert len(workers) == 2
        master.send_signal(signal.SIGTERM)
        assert master.wait(60) == UNKNOWN_EXIT_CODE, locust.log_file.read_text()
        _, remaining_workers = psutil.wait_procs(workers, timeout=30)
        assert remaining_workers == []
        run = locust.take_result()
    assert run["verdict"] == "unknown"
    assert run["why"].startswith("the rush was stopped")


def test_worker_that_joins_midway_takes_part_in_the_next_rush(tmp_path: Path, host: str) -> None:
    """A third worker joins during the first rush, while the buyers of worker 0 wait.

    The first rush goes on with two workers. The second rush has buyers in all three.
    """
    with HeldLocust(tmp_path, host, buy="0") as locust:
        locust.start_web_ui()
        locust.start_workers()
        locust.wait_for_workers(2, "ready")
        locust.start_rush_by_web_ui()
        locust.wait_for_buyers("buy", 0)
        locust.start_workers(1)
        locust.wait_for_workers(3, "running", "spawning")
        locust.release_buyers("buy")
        first_run = locust.take_result()
        first_pids = read_buyer_pids(tmp_path)
        locust.wait_for_workers(3, "stopped")
        locust.start_rush_by_web_ui()
        second_run = locust.take_result()
        second_pids = read_buyer_pids(tmp_path)
    for run in (first_run, second_run):
        assert (run["verdict"], run["arrived"], run["orders"]) == ("exact", 8, 3)
    assert len(first_pids) == 2
    assert len(second_pids) == 3


def test_no_buyer_buys_if_a_worker_dies_before_the_rush_begins(tmp_path: Path, host: str) -> None:
    """Worker 1 is killed while its buyers wait in prepare(), before the rush begins.

    Then the rush fails, and no buyer of worker 0 may buy either.
    """
    with HeldLocust(tmp_path, host, prepare="1") as locust:
        master = locust.start_rush("--master", "--expect-workers", "2")
        locust.start_workers()
        os.kill(locust.wait_for_buyers("prepare", 1), signal.SIGKILL)
        assert master.wait(60) == UNKNOWN_EXIT_CODE, locust.log_file.read_text()
        run = locust.take_result()
    assert run["verdict"] == "unknown"
    assert "has ended, with 4 of 8 buyers, before the buyers were released" in run["error"]
    assert list(tmp_path.glob("buy-*")) == []


def test_rush_is_unknown_if_a_worker_is_killed_before_its_report(tmp_path: Path, host: str) -> None:
    """Worker 1 is killed while its buyers wait before their purchase.

    Before that, the buyers of worker 0 have bought all three units.
    """
    with HeldLocust(tmp_path, host, buy="1") as locust:
        master = locust.start_rush("--master", "--expect-workers", "2")
        workers = locust.start_workers()
        killed_pid = locust.wait_for_buyers("buy", 1)
        locust.wait_until_logged("worker 0 has reported")
        os.kill(killed_pid, signal.SIGKILL)
        assert master.wait(60) == UNKNOWN_EXIT_CODE, locust.log_file.read_text()
        exit_codes = {worker.wait(30) for worker in workers}
        run = locust.take_result()
    assert exit_codes == {0, -signal.SIGKILL}, "only the master exits with the verdict's code"
    assert (run["verdict"], run["orders"]) == ("unknown", 3)
    assert run["why"].startswith("worker 1 on ")
    assert "has ended, so the answers to 4 of 8 buyers are lost" in run["why"]


def test_worker_killed_after_its_report_does_not_change_the_verdict(
    tmp_path: Path, host: str
) -> None:
    """Worker 1 is killed after it has reported the answers to all of its buyers.

    Until then the buyers of worker 0 wait before their purchase.
    """
    with HeldLocust(tmp_path, host, buy="0") as locust:
        master = locust.start_rush("--master", "--expect-workers", "2")
        locust.start_workers()
        killed_pid = locust.wait_for_buyers("buy", 1)
        locust.wait_until_logged("worker 1 has reported")
        os.kill(killed_pid, signal.SIGKILL)
        locust.release_buyers("buy")
        assert master.wait(60) == 0, locust.log_file.read_text()
        run = locust.take_result()
    assert (run["verdict"], run["orders"], run["never_answered"]) == ("exact", 3, 0)
    assert "lost" not in run


def test_workers_never_get_the_restock_token(tmp_path: Path, host: str) -> None:
    """The master must not send the restock token, with which sales are opened, to its workers.

    Any process that can connect to the port of Locust's master may register as a worker. Here a spy
    does so, and reads what the master sends.
    """
    secret = "a-token-that-opens-sales"
    with HeldLocust(tmp_path, host) as locust, zmq.Context() as context:
        locust.start_rush("--master", "--expect-workers", "1", "--restock-token", secret)
        with context.socket(zmq.DEALER) as spy:
            spy.setsockopt(zmq.IDENTITY, b"spy_1")
            spy.setsockopt(zmq.LINGER, 0)
            spy.setsockopt(zmq.RCVTIMEO, 60_000)
            spy.connect(f"tcp://127.0.0.1:{locust.master_port}")
            spy.send(msgpack.dumps(("client_ready", -1, "spy_1")))
            messages = [spy.recv()]
            while b"spawn" not in messages[-1]:
                messages.append(spy.recv())
    assert any(b"parsed_options" in message for message in messages)
    assert not any(secret.encode() in message for message in messages)
