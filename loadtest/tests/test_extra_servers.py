"""If ZooKeeper, which only one strategy needs, does not start, the other strategies still run."""

import io
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from loadtest.commands import faults, rushes
from loadtest.tests.checkout import read_newest_runs
from servers import zookeeper

SMALL_RUSH: dict[str, Any] = {"buyers": 6, "stock": 3}


@pytest.fixture(params=["ended", "silent"])
def zookeeper_failure(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Make the start of ZooKeeper fail. Return the failure as the message of a run describes it.

    The program `java` is replaced by one that ends at once, or by one that runs but is no
    ZooKeeper.
    """
    program = tmp_path / "java"
    last_command = "exec sleep 600" if request.param == "silent" else "exit 1"
    program.write_text(f"#!/bin/sh\necho there is no Java here\n{last_command}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(zookeeper, "JAR", program)  # only has to exist
    monkeypatch.setattr(zookeeper, "START_TIMEOUT_SECONDS", 0.5)
    return "no answer in 0.5 s" if request.param == "silent" else "it ended"


@pytest.mark.parametrize("ci", ["", "true"])
def test_matrix_leaves_out_a_strategy_whose_server_did_not_start(
    ci: str, zookeeper_failure: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 0, except in CI, where every server is required."""
    monkeypatch.setenv("CI", ci)
    output = io.StringIO()
    locks = ("zookeeper", "conditional")
    exit_code = rushes.matrix(Console(file=output, width=200), locks=locks, **SMALL_RUSH)
    zookeeper_run, conditional_run = read_newest_runs(results)
    assert (zookeeper_run["verdict"], zookeeper_run["as_expected"]) == ("not_run", not ci)
    assert zookeeper_run["why"].startswith(f"ZooKeeper did not start: {zookeeper_failure}")
    assert zookeeper_run["why"].endswith("; see run.log")
    assert "there is no Java here" in (results / "latest" / "run.log").read_text()
    assert conditional_run["verdict"] == "exact"
    assert exit_code == (1 if ci else 0), output.getvalue()


def test_faults_leave_out_a_strategy_whose_server_did_not_start(
    zookeeper_failure: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict on `zookeeper` is `not_run`. The fault is still made under `conditional`."""
    monkeypatch.delenv("CI", raising=False)
    faults.run(Console(quiet=True), faults=("slow",), locks=("zookeeper", "conditional"))
    cells = {cell["lock"]: cell for cell in read_newest_runs(results)}
    assert cells["conditional"]["verdict"] == "exact"
    assert cells["zookeeper"]["verdict"] == "not_run"
    assert cells["zookeeper"]["missing"].startswith("ZooKeeper did not start")
