"""The command `faults`: its choice of faults, its exit codes, and its results after a failure."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from loadtest.commands import chaos
from loadtest.commands import faults as command
from loadtest.expected import EXPECTED, TRAITS
from loadtest.faults import FAULTS
from loadtest.faults.cells import unknown_cells
from loadtest.judge.run import Cell
from loadtest.judge.verdict import EXIT_CODES
from loadtest.report import tables
from loadtest.stack.client import StrategyFacts
from loadtest.stack.databases import POSTGRES
from loadtest.stack.stack import ROOT, StackError
from loadtest.tests.checkout import read_newest_runs

LOCKS = ("token", "redis")
Play = Callable[[str, Sequence[StrategyFacts]], list[Cell]]


def strategy(name: str) -> StrategyFacts:
    """Return the facts of a strategy, as the command gets them from the testbed."""
    facts = {"name": name, "available": True, "complaint": "", **asdict(TRAITS[name])}
    return cast(StrategyFacts, facts)


class FakeStack(nullcontext[Any]):
    """A testbed that starts nothing. Its /readyz answers once."""

    workers, threads = 1, 1
    nodes = ("A", "B")
    server = "gthread"

    def __init__(self, *, database: str = POSTGRES, **_: object) -> None:
        super().__init__(self)
        self.database = database
        self.parts = [{"PostgreSQL": "version 18", "Redis (locks)": "Valkey 9"}]

    def shop(self, node: int = 0) -> FakeStack:
        return self

    def strategies(self, names: Sequence[str] = ()) -> list[StrategyFacts]:
        return [strategy(name) for name in names or LOCKS]

    def read_readyz(self) -> dict[str, Any]:
        parts = self.parts.pop()
        return {"parts": [{"name": name, "detail": detail} for name, detail in parts.items()]}

    def events(self) -> list[Any]:
        return []


def cells(fault: str, strategies: Sequence[StrategyFacts], **facts: Any) -> list[Cell]:
    """Return the cells of a fault, all as expected except for these facts."""
    fault_cells = unknown_cells(fault, strategies, "")
    return [
        cast(Cell, {**fault_cell, "verdict": fault_cell["expected"], "as_expected": True, **facts})
        for fault_cell in fault_cells
    ]


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    monkeypatch.setattr(command, "Testbed", FakeStack)


def run(monkeypatch: pytest.MonkeyPatch, play: Play, *faults: str) -> tuple[int, str]:
    """Run these faults. Return the exit code and the output."""
    monkeypatch.setattr(
        command, "run_fault", lambda fault, strategies: play(fault.name, strategies)
    )
    printed = io.StringIO()
    code = command.run(Console(file=printed, width=120), faults=faults)
    return code, printed.getvalue()


def test_after_two_faults_with_broken_servers_the_rest_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    tried = []

    def play(name: str, strategies: Sequence[StrategyFacts]) -> list[Cell]:
        tried.append(name)
        if name == "slow":
            return cells(name, strategies)
        raise StackError("node A did not start")

    code, printed = run(monkeypatch, play, "crash", "slow", "pause", "clock", "stall")
    assert tried == ["crash", "slow", "pause", "clock"]
    assert code == EXIT_CODES["unknown"]
    outcomes = {(run["fault"], run["verdict"], run["missing"]) for run in read_newest_runs(results)}
    why = "StackError: node A did not start"
    assert {
        ("crash", "unknown", why),
        ("pause", "unknown", why),
        ("clock", "unknown", why),
    } < outcomes
    assert {outcome[0] for outcome in outcomes} == {"crash", "slow", "pause", "clock", "stall"}
    assert f"token under pause: unknown, expected oversold ({why})" in printed


def test_results_are_kept_after_each_fault_and_when_the_run_is_stopped(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    kept = []

    def play(name: str, strategies: Sequence[StrategyFacts]) -> list[Cell]:
        if name != "crash":
            (folder,) = results.iterdir()
            summary = json.loads((folder / "summary.json").read_text())
            kept.append({run["fault"] for run in summary["runs"]})
        if name == "pause":
            raise KeyboardInterrupt
        return cells(name, strategies)

    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, play, "crash", "slow", "pause", "stall")
    assert kept == [{"crash"}, {"crash", "slow"}]
    assert {run["fault"] for run in read_newest_runs(results)} == {"crash", "slow"}
    assert (results / "latest" / "faults.md").read_text().startswith("# Faults")
    assert (results / "latest" / "report.html").exists()


def test_exit_codes_distinguish_violations_and_inconclusive_runs() -> None:
    strategies = [strategy(name) for name in LOCKS]
    right = cells("crash", strategies)
    off = cells("slow", strategies, verdict="deadlock", as_expected=False)
    wrong = cells("stall", strategies, wrong=["two holders"], as_expected=False)
    nothing = unknown_cells("pause", strategies, "it did not fire")
    assert command.exit_code(right) == 0
    assert command.exit_code([*right, *nothing]) == EXIT_CODES["unknown"] == 6
    assert command.exit_code([*right, *off]) == command.exit_code([*nothing, *wrong]) == 1
    assert command.exit_code([*nothing, *off]) == 1


def test_missed_flaw_is_inconclusive_and_an_oversell_a_failure() -> None:
    """CI repeats a run only after the exit code of the first."""
    token, redis = unknown_cells("pause", [strategy(name) for name in LOCKS], "")
    off: dict[str, Any] = {"as_expected": False}
    missed = cast(Cell, {**token, "verdict": "exact", **off})
    oversold = cast(Cell, {**redis, "verdict": "oversold", **off})
    undersold = cast(Cell, {**token, "verdict": "undersold", **off})
    two_holders = cast(Cell, {**missed, "wrong": ["two holders"]})
    assert (token["expected"], redis["expected"]) == ("oversold", "exact")
    assert command.exit_code([missed]) == EXIT_CODES["unknown"]
    for violation in (oversold, undersold, two_holders):
        assert command.exit_code([missed, violation]) == 1


# --- the choice of faults and strategies ---------------------------------------------------------


def test_every_fault_of_the_table_exists_and_every_fault_is_in_the_table() -> None:
    expected = {fault for row in EXPECTED.values() for fault in row}
    assert expected - {"rush", "rush-one-process"} == set(FAULTS)


@pytest.mark.parametrize("name", command.EXTERNAL_SERVER_VARIABLES)
def test_no_fault_is_made_on_external_servers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command.refuse_external_servers()
    monkeypatch.setenv(name, "redis://example.test")
    with pytest.raises(StackError, match=f"unset {name}"):
        command.run(Console(quiet=True))
    with pytest.raises(StackError, match=f"unset {name}"):
        chaos.run(Console(quiet=True))


def test_fault_that_a_database_cannot_have_is_not_run(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    monkeypatch.setenv("CI", "1")
    monkeypatch.setattr(command, "Testbed", FakeStack)
    console = Console(file=io.StringIO())
    assert command.run(console, faults=["db-kill", "crash"], database="sqlite") == 0
    summary = json.loads(next(results.glob("2*/summary.json")).read_text())
    reasons = {(run["fault"], run["verdict"], run["missing"]) for run in summary["runs"]}
    assert reasons == {
        ("db-kill", "not_run", "SQLite has no server that could end a connection"),
        ("crash", "not_run", "made on PostgreSQL only"),
    }
    assert list(results.glob("2*/faults-sqlite.md"))


def test_choice_without_a_fault_is_refused() -> None:
    with pytest.raises(StackError, match="none of these faults concerns any of these locks"):
        command.run(Console(quiet=True), faults=["quorum"], locks=["token"])


def test_importing_the_faults_opens_no_socket() -> None:
    """A port that is free at the import may belong to another process when the fault is made."""
    program = (
        "import sys\n"
        "def forbid(event, arguments):\n"
        "    if event in ('socket.bind', 'socket.connect'):\n"
        "        raise SystemExit(f'{event} {arguments} at import')\n"
        "sys.addaudithook(forbid)\n"
        "import loadtest.faults\n"
    )
    command_line = [sys.executable, "-c", program]
    process = subprocess.run(command_line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (process.returncode, process.stderr) == (0, "")


# --- results --------------------------------------------------------------------------------------


def test_full_disk_keeps_the_previous_summary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write = Path.write_text

    def half(path: Path, text: str) -> int:
        write(path, text[: len(text) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    tables.write_summary(tmp_path, cast(Any, {"runs": [1]}))
    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space left"):
        tables.write_summary(tmp_path, cast(Any, {"runs": [1, 2]}))
    assert json.loads((tmp_path / "summary.json").read_text()) == {"runs": [1]}
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
