"""Locust as a library in one child process: several rushes, with and without workers."""

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

SIZE: dict[str, Any] = {"buyers": 8, "stock": 3, "deadline": 40}


def test_stopped_rush_of_the_page_has_no_verdict(tmp_path: Path, host: str) -> None:
    places, folder = HeldTarget(tmp_path, buy="1"), tmp_path / "folder"
    folder.mkdir()
    wanted_file, state = folder / "wanted", folder / "state"

    def want() -> None:
        new = tmp_path / "new"
        new.write_text(json.dumps({"target": str(places.target), **SIZE}))
        new.rename(wanted_file)

    def told() -> Any:
        return json.loads(state.read_text()) if state.exists() else {"rush": None}

    with (tmp_path / "log").open("wb") as log, LocustProcess(log) as buyers:
        buyers.serve(str(folder), RushPlan(hosts=[host]))
        want()
        four = "four of eight answered"
        eventually(lambda: (told()["rush"] or {}).get("answered") == 4, what=four, timeout=60)
        assert 0 < told()["rush"]["left_s"] <= 40
        (folder / "stop").touch()
        eventually(lambda: not wanted_file.exists(), what="the end of the rush", timeout=60)
        (stopped,) = told()["runs"].values()
        places.release_buyers("buy")
        want()
        eventually(lambda: not wanted_file.exists(), what="the end of the rush", timeout=60)
    assert (stopped["verdict"], stopped["stopped"]) == ("unknown", True)
    assert (stopped["never_asked"], stopped["never_answered"]) == (0, 4)
    assert [run["verdict"] for run in told()["runs"].values()] == ["exact"]  # of the same sale
    assert b"a target may print" in (tmp_path / "log").read_bytes()


def test_death_of_locust_is_an_error_that_names_the_log(tmp_path: Path, host: str) -> None:
    places = HeldTarget(tmp_path, buy="0")

    def kill() -> None:
        os.kill(places.wait_for_buyers("buy", 0), signal.SIGKILL)

    with (tmp_path / "log").open("wb") as log, LocustProcess(log) as buyers:
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(StackError, match=r"Locust ended in a rush; see .*log"):
            buyers.rush(RushPlan(hosts=[host], target=str(places.target), **SIZE))
        killer.join()


def test_locust_ends_with_whoever_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from loadtest.rush.locust.locust_process import LocustProcess\n"
        "with open(sys.argv[1], 'wb') as log, LocustProcess(log, workers=2) as buyers:\n"
        "    print(buyers.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    eventually(lambda: len(child.children()) == 2, what="two workers", timeout=60)
    family = [child, *child.children()]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, left = psutil.wait_procs(family, timeout=20)
    assert left == []
