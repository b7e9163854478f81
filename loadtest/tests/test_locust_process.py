"""LocustProcess: Locust in a child process of a command, which runs several rushes.

The target (held_target.py) makes half of its eight buyers wait before their purchase: with buy="0"
those with even numbers, and with buy="1" those with odd numbers.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadtest.rush.locust.locust_process import LocustProcess
from loadtest.rush.plan import RushPlan
from loadtest.stack.stack import ROOT, StackError
from loadtest.tests.held_target import HeldTarget
from servers.tests.polling import eventually

#: Fields of a RushPlan.
RUSH_OPTIONS: dict[str, Any] = {"buyers": 8, "stock": 3, "deadline": 40}


def test_stopped_rush_of_the_page_is_unknown(tmp_path: Path, host: str) -> None:
    """The shop's page and Locust communicate by files in a folder.

    The page starts a rush by writing the file `wanted`, stops it by creating the file `stop`, and
    reads the progress and the results from the file `state`.

    The first rush is stopped while four buyers wait before their purchase. The second rush is
    exact. This shop numbers no sales, so the second result replaces the first in `state`.
    """
    held_target = HeldTarget(tmp_path, buy="1")
    rush_folder = tmp_path / "folder"
    rush_folder.mkdir()
    wanted_file = rush_folder / "wanted"
    state_file = rush_folder / "state"

    def start_rush() -> None:
        new_file = tmp_path / "new"  # renamed when it is complete, so that Locust reads it whole
        new_file.write_text(json.dumps({"target": str(held_target.target), **RUSH_OPTIONS}))
        new_file.rename(wanted_file)

    def read_state() -> Any:
        return json.loads(state_file.read_text())

    def are_four_answered() -> bool:
        rush = read_state()["rush"] if state_file.exists() else None
        return rush is not None and rush.get("answered") == 4

    def wait_for_rush_end() -> None:
        eventually(lambda: not wanted_file.exists(), what="the end of the rush", timeout=60)

    with (tmp_path / "log").open("wb") as log, LocustProcess(log) as locust:
        locust.run_rushes_of_page(str(rush_folder), RushPlan(hosts=[host]))
        start_rush()
        eventually(are_four_answered, what="four of eight answered", timeout=60)
        assert 0 < read_state()["rush"]["left_s"] <= RUSH_OPTIONS["deadline"]
        (rush_folder / "stop").touch()
        wait_for_rush_end()
        (stopped_run,) = read_state()["runs"].values()
        held_target.release_buyers("buy")
        start_rush()
        wait_for_rush_end()
    assert (stopped_run["verdict"], stopped_run["stopped"]) == ("unknown", True)
    assert (stopped_run["never_asked"], stopped_run["never_answered"]) == (0, 4)
    (second_run,) = read_state()["runs"].values()
    assert second_run["verdict"] == "exact"
    assert b"a target may print" in (tmp_path / "log").read_bytes()


def test_error_on_a_killed_locust_has_the_path_of_its_log(tmp_path: Path, host: str) -> None:
    """Locust is killed while the four buyers with even numbers wait before their purchase."""
    held_target = HeldTarget(tmp_path, buy="0")

    def kill_locust() -> None:
        os.kill(held_target.wait_for_buyers("buy", 0), signal.SIGKILL)

    with (tmp_path / "log").open("wb") as log, LocustProcess(log) as locust:
        killer = threading.Thread(target=kill_locust)
        killer.start()
        with pytest.raises(StackError, match=r"Locust ended in a rush; see .*log"):
            locust.run_rush(RushPlan(hosts=[host], target=str(held_target.target), **RUSH_OPTIONS))
        killer.join()


def test_locust_and_its_workers_end_with_their_parent(tmp_path: Path) -> None:
    """A process that has started Locust with two workers is killed. Then Locust ends, too."""
    program = (
        "import sys, time\n"
        "from loadtest.rush.locust.locust_process import LocustProcess\n"
        "with open(sys.argv[1], 'wb') as log, LocustProcess(log, workers=2) as locust:\n"
        "    print(locust.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    locust = psutil.Process(int(parent.stdout.readline()))
    eventually(lambda: len(locust.children()) == 2, what="two workers", timeout=60)
    processes = [locust, *locust.children()]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []
