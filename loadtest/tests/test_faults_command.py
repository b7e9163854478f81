"""The command `faults`: its choice of faults, its exit codes, and its results after a failure.

A cell is the judged sale of one strategy under one fault. No test here makes a real fault.
"""

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

#: The strategies under which each fault is made. `token` has a flaw, and `redis` is sound.
STRATEGIES = ("token", "redis")
#: A stand-in for run_fault(): takes a fault's name and the strategies, and returns their cells.
RunFaultStub = Callable[[str, Sequence[StrategyFacts]], list[Cell]]


def describe_strategy(name: str) -> StrategyFacts:
    """Return the shop's description of a strategy: its name and traits, and that it can be used."""
    fields = {"name": name, "available": True, "complaint": "", **asdict(TRAITS[name])}
    return cast(StrategyFacts, fields)


class FakeTestbed(nullcontext[Any]):
    """A testbed without servers, with the attributes that the command reads.

    It also stands in for the client of its shop, which shop() returns.
    """

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
        return [describe_strategy(name) for name in names or STRATEGIES]

    def read_readyz(self) -> dict[str, Any]:
        """Return the versions of the servers. A second call fails: a run should make only one."""
        versions = self.unread_versions.pop()
        return {"parts": [{"name": name, "detail": detail} for name, detail in versions.items()]}

    def events(self) -> list[Any]:
        return []


def make_cells(fault: str, strategies: Sequence[StrategyFacts], **fields: Any) -> list[Cell]:
    """Return a cell for each strategy under a fault, with the verdict that is expected of it.

    fields  further fields of all cells, or ones that replace the usual fields
    """
    return [
        cast(Cell, {**cell, "verdict": cell["expected"], "as_expected": True, **fields})
        for cell in make_unknown_cells(fault, strategies, "")
    ]


@pytest.fixture(autouse=True)
def _use_fake_testbed(monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    monkeypatch.setattr(command, "Testbed", FakeTestbed)


def run_faults(
    monkeypatch: pytest.MonkeyPatch, run_fault_stub: RunFaultStub, *faults: str
) -> tuple[int, str]:
    """Run the command `faults`, and return its exit code and its output.

    run_fault_stub  the function that the command calls instead of run_fault()
    faults          the names of the faults
    """
    monkeypatch.setattr(
        command, "run_fault", lambda fault, strategies: run_fault_stub(fault.name, strategies)
    )
    output = io.StringIO()
    exit_code = command.run(Console(file=output, width=120), faults=faults)
    return exit_code, output.getvalue()


def test_command_gives_up_after_two_server_failures_in_a_row(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    """The faults run in the order of the tuple `faults`, and all but `slow` raise a StackError.

    After `crash` the command goes on, because `slow` succeeds. After `pause` and `clock` it gives
    up: `stall` is not tried.
    """
    tried_faults = []

    def run_fault_stub(fault: str, strategies: Sequence[StrategyFacts]) -> list[Cell]:
        tried_faults.append(fault)
        if fault == "slow":
            return make_cells(fault, strategies)
        raise StackError("node A did not start")

    faults = ("crash", "slow", "pause", "clock", "stall")
    exit_code, output = run_faults(monkeypatch, run_fault_stub, *faults)
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
    """The reason is in the field `why` of a cell, the judged sale of one strategy under a fault."""

    def run_fault_stub(fault: str, strategies: Sequence[StrategyFacts]) -> list[Cell]:
        return make_cells(
            fault, strategies, verdict="unknown", as_expected=False, why="1 buyer sent no request"
        )

    exit_code, output = run_faults(monkeypatch, run_fault_stub, "pause")
    assert exit_code == EXIT_CODES["unknown"]
    assert "redis under pause: unknown, expected exact (1 buyer sent no request)" in output


def test_results_are_written_after_each_fault(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    """When a fault begins, summary.json already has the results of the faults before it.

    The results remain if the command is interrupted, here in the third fault, `pause`.
    """
    faults_in_summary = []

    def run_fault_stub(fault: str, strategies: Sequence[StrategyFacts]) -> list[Cell]:
        is_first_fault = fault == "crash"  # before it there is no summary
        if not is_first_fault:
            (folder,) = results.iterdir()
            summary = json.loads((folder / "summary.json").read_text())
            faults_in_summary.append({run["fault"] for run in summary["runs"]})
        if fault == "pause":
            raise KeyboardInterrupt  # as if Ctrl-C was pressed
        return make_cells(fault, strategies)

    with pytest.raises(KeyboardInterrupt):
        run_faults(monkeypatch, run_fault_stub, "crash", "slow", "pause", "stall")
    assert faults_in_summary == [{"crash"}, {"crash", "slow"}]
    assert {run["fault"] for run in read_newest_runs(results)} == {"crash", "slow"}
    assert (results / "latest" / "faults.md").read_text().startswith("# Faults")
    assert (results / "latest" / "report.html").exists()


def test_exit_codes_distinguish_violations_and_inconclusive_runs() -> None:
    """The exit code is 1 if a cell has a violation, even if other cells are inconclusive.

    Without a violation, the exit code is 6 if a cell is inconclusive. A cell is the judged sale of
    one strategy under one fault.
    """
    strategies = [describe_strategy(name) for name in STRATEGIES]
    expected_cells = make_cells("crash", strategies)
    deadlocked_cells = make_cells("slow", strategies, verdict="deadlock", as_expected=False)
    cells_with_two_holders = make_cells(
        "stall", strategies, wrong=["two holders"], as_expected=False
    )
    inconclusive_cells = make_unknown_cells("pause", strategies, "it did not fire")
    assert command.choose_exit_code(expected_cells) == 0
    inconclusive = EXIT_CODES["unknown"]
    assert inconclusive == 6
    assert command.choose_exit_code([*expected_cells, *inconclusive_cells]) == inconclusive
    assert command.choose_exit_code([*expected_cells, *deadlocked_cells]) == 1
    assert command.choose_exit_code([*inconclusive_cells, *deadlocked_cells]) == 1
    assert command.choose_exit_code([*inconclusive_cells, *cells_with_two_holders]) == 1


def test_exact_sale_of_a_flawed_strategy_is_only_inconclusive() -> None:
    """`token` is expected to oversell under `pause`, but may be exact on a slow machine.

    A violation in another cell, or a violation of another kind in the same cell, is a failure. A
    cell is the judged sale of one strategy under one fault.
    """
    strategies = [describe_strategy(name) for name in STRATEGIES]
    token_cell, redis_cell = make_unknown_cells("pause", strategies, "")
    assert not token_cell["as_expected"]
    assert not redis_cell["as_expected"]
    exact_token_cell = cast(Cell, {**token_cell, "verdict": "exact"})
    oversold_cell = cast(Cell, {**redis_cell, "verdict": "oversold"})
    undersold_cell = cast(Cell, {**token_cell, "verdict": "undersold"})
    cell_with_two_holders = cast(Cell, {**exact_token_cell, "wrong": ["two holders"]})
    assert (token_cell["expected"], redis_cell["expected"]) == ("oversold", "exact")
    assert command.choose_exit_code([exact_token_cell]) == EXIT_CODES["unknown"]
    for violating_cell in (oversold_cell, undersold_cell, cell_with_two_holders):
        assert command.choose_exit_code([exact_token_cell, violating_cell]) == 1


# --- the choice of faults and strategies ---------------------------------------------------------


def test_table_of_expected_verdicts_has_a_column_for_each_fault() -> None:
    """The table EXPECTED has no other columns, except for the two about rushes without a fault."""
    columns = {column for row in EXPECTED.values() for column in row}
    columns_without_a_fault = {"rush", "rush-one-process"}
    assert columns - columns_without_a_fault == set(FAULTS)


@pytest.mark.parametrize("name", command.EXTERNAL_SERVER_VARIABLES)
def test_no_fault_is_made_on_external_servers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands `faults` and `chaos` refuse to run if a variable names a server of the user."""
    command.refuse_external_servers()  # raises nothing without the variable
    monkeypatch.setenv(name, "redis://example.test")
    with pytest.raises(StackError, match=f"unset {name}"):
        command.run(Console(quiet=True))
    with pytest.raises(StackError, match=f"unset {name}"):
        chaos.run(Console(quiet=True))


def test_fault_is_not_run_if_the_database_does_not_support_it(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    """On SQLite, the verdicts under two faults are `not_run`. The exit code is 0, even in CI."""
    monkeypatch.setenv("CI", "1")
    console = Console(quiet=True)
    assert command.run(console, faults=["db-kill", "crash"], database="sqlite") == 0
    runs = read_newest_runs(results)
    reasons = {(run["fault"], run["verdict"], run["missing"]) for run in runs}
    assert reasons == {
        ("db-kill", "not_run", "SQLite has no server that could end a connection"),
        ("crash", "not_run", "injected on PostgreSQL only"),
    }
    assert (results / "latest" / "faults-sqlite.md").exists()


def test_fault_that_concerns_no_chosen_strategy_is_refused() -> None:
    """The fault `quorum` is for the strategy `redlock` only, but only `token` is chosen."""
    with pytest.raises(StackError, match="none of these faults affects any of these locks"):
        command.run(Console(quiet=True), faults=["quorum"], locks=["token"])


def test_importing_the_faults_opens_no_socket() -> None:
    """The import runs in a process that ends with an error if a socket is bound or connected.

    If a module chose a port when it is imported, another process might take the port before it is
    used.
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
    """The disk becomes full while the new summary is written."""
    write_text = Path.write_text

    def write_half_and_fail(path: Path, text: str) -> int:
        write_text(path, text[: len(text) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    tables.write_summary(tmp_path, cast(Any, {"runs": [1]}))
    monkeypatch.setattr(Path, "write_text", write_half_and_fail)
    with pytest.raises(OSError, match="No space left"):
        tables.write_summary(tmp_path, cast(Any, {"runs": [1, 2]}))
    assert json.loads((tmp_path / "summary.json").read_text()) == {"runs": [1]}
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
