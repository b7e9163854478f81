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
from loadtest.faults.cells import make_unknown_cells
from loadtest.judge.run import Cell
from loadtest.judge.verdict import EXIT_CODES
from loadtest.report import tables
from loadtest.stack.client import StrategyFacts
from loadtest.stack.databases import POSTGRES
from loadtest.stack.stack import ROOT, StackError
from loadtest.tests.checkout import read_newest_runs

LOCKS = ("token", "redis")
MakeFault = Callable[[str, Sequence[StrategyFacts]], list[Cell]]


def describe_strategy(name: str) -> StrategyFacts:
    """Return a strategy as the shop lists it: its name, whether it can be used, and its traits."""
    fields = {"name": name, "available": True, "complaint": "", **asdict(TRAITS[name])}
    return cast(StrategyFacts, fields)


class FakeTestbed(nullcontext[Any]):
    """A testbed that starts no servers. It is also the client of its shop."""

    workers = 1
    threads = 1
    nodes = ("A", "B")
    server = "gthread"

    def __init__(self, *, database: str = POSTGRES, **_: object) -> None:
        super().__init__(self)  # `with FakeTestbed() as testbed` yields this object
        self.database = database
        self.unread_versions = [{"PostgreSQL": "version 18", "Redis (locks)": "Valkey 9"}]

    def shop(self, node: int = 0) -> FakeTestbed:
        return self

    def strategies(self, names: Sequence[str] = ()) -> list[StrategyFacts]:
        return [describe_strategy(name) for name in names or LOCKS]

    def read_readyz(self) -> dict[str, Any]:
        """Return the servers' versions. A second call fails: a run should read them once."""
        versions = self.unread_versions.pop()
        return {"parts": [{"name": name, "detail": detail} for name, detail in versions.items()]}

    def events(self) -> list[Any]:
        return []


def make_cells(fault: str, strategies: Sequence[StrategyFacts], **fields: Any) -> list[Cell]:
    """Return a cell of a fault for each strategy, with the expected verdict.

    fields  further fields of all cells, or other values than the usual ones
    """
    return [
        cast(Cell, {**cell, "verdict": cell["expected"], "as_expected": True, **fields})
        for cell in make_unknown_cells(fault, strategies, "")
    ]


@pytest.fixture(autouse=True)
def _use_fake_testbed(monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    monkeypatch.setattr(command, "Testbed", FakeTestbed)


def run_faults(
    monkeypatch: pytest.MonkeyPatch, make_fault: MakeFault, *faults: str
) -> tuple[int, str]:
    """Run the command `faults`. It calls `make_fault` instead of running real faults.

    Return the exit code and the output.
    """
    monkeypatch.setattr(
        command, "run_fault", lambda fault, strategies: make_fault(fault.name, strategies)
    )
    output = io.StringIO()
    exit_code = command.run(Console(file=output, width=120), faults=faults)
    return exit_code, output.getvalue()


def test_command_gives_up_after_two_server_failures_in_a_row(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    """The faults `pause` and `clock` both raise a StackError, so `stall`, the next, is not tried.

    The first fault, `crash`, also raises one, but `slow`, the next, succeeds.
    """
    tried_faults = []

    def make_fault(fault: str, strategies: Sequence[StrategyFacts]) -> list[Cell]:
        tried_faults.append(fault)
        if fault == "slow":
            return make_cells(fault, strategies)
        raise StackError("node A did not start")

    faults = ("crash", "slow", "pause", "clock", "stall")
    exit_code, output = run_faults(monkeypatch, make_fault, *faults)
    assert tried_faults == ["crash", "slow", "pause", "clock"]
    assert exit_code == EXIT_CODES["unknown"]
    runs = read_newest_runs(results)
    assert {run["fault"] for run in runs} == set(faults)
    reason = "StackError: node A did not start"
    for run in runs:
        if run["fault"] in ("crash", "pause", "clock"):
            assert (run["verdict"], run["missing"]) == ("unknown", reason)
    assert f"token under pause: unknown, expected oversold ({reason})" in output


def test_output_has_the_reason_for_an_unknown_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The judge's reason is in the field `why` of a cell, the judged sale of one strategy."""

    def make_fault(fault: str, strategies: Sequence[StrategyFacts]) -> list[Cell]:
        return make_cells(
            fault, strategies, verdict="unknown", as_expected=False, why="1 never asked"
        )

    exit_code, output = run_faults(monkeypatch, make_fault, "pause")
    assert exit_code == EXIT_CODES["unknown"]
    assert "redis under pause: unknown, expected exact (1 never asked)" in output


def test_results_are_written_after_each_fault(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    """When a fault begins, summary.json already has the faults that were run before.

    Ctrl-C, which raises KeyboardInterrupt, is pressed in the third fault, `pause`.
    """
    faults_in_summary = []

    def make_fault(fault: str, strategies: Sequence[StrategyFacts]) -> list[Cell]:
        if fault != "crash":  # `crash` is the first fault, so there is no summary yet
            (folder,) = results.iterdir()
            summary = json.loads((folder / "summary.json").read_text())
            faults_in_summary.append({run["fault"] for run in summary["runs"]})
        if fault == "pause":
            raise KeyboardInterrupt
        return make_cells(fault, strategies)

    with pytest.raises(KeyboardInterrupt):
        run_faults(monkeypatch, make_fault, "crash", "slow", "pause", "stall")
    assert faults_in_summary == [{"crash"}, {"crash", "slow"}]
    assert {run["fault"] for run in read_newest_runs(results)} == {"crash", "slow"}
    assert (results / "latest" / "faults.md").read_text().startswith("# Faults")
    assert (results / "latest" / "report.html").exists()


def test_exit_codes_distinguish_violations_and_inconclusive_runs() -> None:
    """A violation in one cell makes the exit code 1, even if other cells are inconclusive."""
    strategies = [describe_strategy(name) for name in LOCKS]
    expected_cells = make_cells("crash", strategies)
    deadlocked_cells = make_cells("slow", strategies, verdict="deadlock", as_expected=False)
    cells_with_two_holders = make_cells(
        "stall", strategies, wrong=["two holders"], as_expected=False
    )
    inconclusive_cells = make_unknown_cells("pause", strategies, "it did not fire")
    assert command.choose_exit_code(expected_cells) == 0
    assert EXIT_CODES["unknown"] == 6
    assert command.choose_exit_code([*expected_cells, *inconclusive_cells]) == 6
    assert command.choose_exit_code([*expected_cells, *deadlocked_cells]) == 1
    assert command.choose_exit_code([*inconclusive_cells, *deadlocked_cells]) == 1
    assert command.choose_exit_code([*inconclusive_cells, *cells_with_two_holders]) == 1


def test_missed_flaw_alone_is_inconclusive_but_excuses_no_violation() -> None:
    """A flaw is missed if a flawed strategy is exact, perhaps because the machine was too slow.

    A violation in another cell, or a second one in the same cell, is still a failure.
    """
    strategies = [describe_strategy(name) for name in LOCKS]
    token_cell, redis_cell = make_unknown_cells("pause", strategies, "")
    assert not token_cell["as_expected"]
    assert not redis_cell["as_expected"]
    missed_flaw = cast(Cell, {**token_cell, "verdict": "exact"})
    oversold_cell = cast(Cell, {**redis_cell, "verdict": "oversold"})
    undersold_cell = cast(Cell, {**token_cell, "verdict": "undersold"})
    cell_with_two_holders = cast(Cell, {**missed_flaw, "wrong": ["two holders"]})
    assert (token_cell["expected"], redis_cell["expected"]) == ("oversold", "exact")
    assert command.choose_exit_code([missed_flaw]) == EXIT_CODES["unknown"]
    for violation in (oversold_cell, undersold_cell, cell_with_two_holders):
        assert command.choose_exit_code([missed_flaw, violation]) == 1


# --- the choice of faults and strategies ---------------------------------------------------------


def test_every_fault_of_the_table_exists_and_every_fault_is_in_the_table() -> None:
    columns = {fault for row in EXPECTED.values() for fault in row}
    assert columns - {"rush", "rush-one-process"} == set(FAULTS)


@pytest.mark.parametrize("name", command.EXTERNAL_SERVER_VARIABLES)
def test_no_fault_is_made_on_external_servers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command.refuse_external_servers()  # raises nothing without the variable
    monkeypatch.setenv(name, "redis://example.test")
    with pytest.raises(StackError, match=f"unset {name}"):
        command.run(Console(quiet=True))
    with pytest.raises(StackError, match=f"unset {name}"):
        chaos.run(Console(quiet=True))


def test_fault_is_not_run_if_the_database_cannot_have_it(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    """Each verdict is `not_run`, and the command still returns 0, even in CI."""
    monkeypatch.setenv("CI", "1")
    console = Console(quiet=True)
    assert command.run(console, faults=["db-kill", "crash"], database="sqlite") == 0
    runs = read_newest_runs(results)
    reasons = {(run["fault"], run["verdict"], run["missing"]) for run in runs}
    assert reasons == {
        ("db-kill", "not_run", "SQLite has no server that could end a connection"),
        ("crash", "not_run", "made on PostgreSQL only"),
    }
    assert (results / "latest" / "faults-sqlite.md").exists()


def test_fault_that_concerns_no_chosen_strategy_is_refused() -> None:
    """The fault `quorum` concerns the strategy `redlock` only, so `token` has no cell under it."""
    with pytest.raises(StackError, match="none of these faults concerns any of these locks"):
        command.run(Console(quiet=True), faults=["quorum"], locks=["token"])


def test_importing_the_faults_opens_no_socket() -> None:
    """The faults are imported in a process that ends if a socket is bound or connected.

    If a port was chosen at import, another process might take it before it is used.
    """
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
    """The disk is full when half of the new summary is written."""
    write_text = Path.write_text

    def write_half(path: Path, text: str) -> int:
        write_text(path, text[: len(text) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    tables.write_summary(tmp_path, cast(Any, {"runs": [1]}))
    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(OSError, match="No space left"):
        tables.write_summary(tmp_path, cast(Any, {"runs": [1, 2]}))
    assert json.loads((tmp_path / "summary.json").read_text()) == {"runs": [1]}
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
