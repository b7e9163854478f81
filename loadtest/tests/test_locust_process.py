"""Locust as a library in one child process: rush after rush, with and without workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadtest.rush.locust_process import LocustProcess
from loadtest.stack.stack import ROOT, Stack, StackError
from loadtest.tests.steered import Places
from servers.tests.polling import eventually

SIZE: dict[str, Any] = {"buyers": 8, "stock": 3, "deadline": 40}


def test_one_locust_serves_rush_after_rush_and_leaves_no_process() -> None:
    with (
        tempfile.NamedTemporaryFile() as log,
        Stack(nodes=2, workers=1, threads=30, log=log) as stack,
        LocustProcess(log, workers=2) as buyers,
    ):
        runs = [
            buyers.rush(
                [node.url for node in stack.nodes],
                buyers=60,
                stock=20,
                lock=lock,
                hold_ms=0,
                product="apple",
                restock_token=stack.token,
            )
            for lock in ("none", "redis", "none")
        ]
        assert buyers.pid is not None
        processes = psutil.Process(buyers.pid).children(recursive=True)
        buyers.__exit__()
        _, left = psutil.wait_procs(processes, timeout=10)
    assert left == []
    assert [run["verdict"] for run in runs] == ["oversold", "exact", "oversold"]
    assert [run["arrived"] for run in runs] == [60] * 3
    assert len({run["sale"] for run in runs}) == 3
    assert [len(run["locust_workers"]) for run in runs] == [2] * 3


def test_a_rush_that_is_stopped_is_no_verdict_and_the_next_one_runs(
    tmp_path: Path, host: str
) -> None:
    places = Places(tmp_path, buy="1")
    heard: list[dict[str, Any]] = []

    def stop(progress: dict[str, Any]) -> bool:
        heard.append(progress)
        return bool(progress["answered"] == 4)

    with (tmp_path / "log").open("wb") as log, LocustProcess(log) as buyers:
        stopped = buyers.rush([host], target=str(places.target), heard=stop, **SIZE)
        places.go_on("buy")
        after = buyers.rush([host], target=str(places.target), **SIZE)
    assert (stopped["verdict"], stopped["stopped"]) == ("unknown", True)
    assert (stopped["never_asked"], stopped["never_answered"]) == (0, 4)
    assert 0 < heard[-1]["left_s"] <= 40
    assert (after["verdict"], after["orders"]) == ("exact", 3)
    assert b"a target may print" in (tmp_path / "log").read_bytes()


def test_a_locust_that_dies_is_an_error_that_names_the_log(tmp_path: Path, host: str) -> None:
    places = Places(tmp_path, buy="0")

    with (tmp_path / "log").open("wb") as log, LocustProcess(log) as buyers:
        assert buyers.pid is not None
        pid = buyers.pid
        with pytest.raises(StackError, match=r"Locust ended in a rush; see .*log"):
            buyers.rush(
                [host], target=str(places.target), heard=lambda _: os.kill(pid, signal.SIGKILL),
                **SIZE,
            )  # fmt: skip


def test_locust_ends_with_whoever_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from loadtest.rush.locust_process import LocustProcess\n"
        "with open(sys.argv[1], 'wb') as log, LocustProcess(log, workers=2) as buyers:\n"
        "    print(buyers.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    eventually(lambda: len(child.children()) == 2, what="two workers", timeout=60)
    family = [child, *child.children()]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, left = psutil.wait_procs(family, timeout=20)
    assert left == []
