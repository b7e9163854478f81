"""The command `faults`: every fault, injected under each strategy that it can affect.

A cell is one strategy under one fault, with its verdict, which is compared with the expected one.

Unlike `demo` and `matrix` (rushes.py), this command does not use Locust. Under each fault, every
strategy has its own product with 10 units, and its own 20 buyers. The nodes reach their servers
through proxies, which can interrupt the connections.
"""

import os
import time
from collections.abc import Iterator, Sequence

from rich.console import Console

from loadtest.commands.output import Output
from loadtest.commands.rushes import make_results_filename
from loadtest.expected import DATABASE_FAULTS, find_reason_not_to_inject
from loadtest.faults import FAULTS, fault_report
from loadtest.faults.cells import make_not_run_cell, make_unknown_cells
from loadtest.faults.runner import find_affected_strategies, run_fault
from loadtest.faults.testbed import Testbed
from loadtest.judge.finding import format_count
from loadtest.judge.run import Cell
from loadtest.judge.verdict import EXIT_CODES
from loadtest.report import html_report, tables
from loadtest.stack.client import StrategyFacts
from loadtest.stack.databases import DATABASES, POSTGRES
from loadtest.stack.stack import SERVERS, StackError
from servers import embedded

#: Enough threads for five buyers of each strategy at the same time: the victim, whom the fault
#: hits, a rival, who buys meanwhile, and the buyers that let_remaining_buyers_buy() starts.
THREADS_PER_NODE = 160
#: If the servers did not come back after this many faults in a row, no further fault is injected.
MAX_FAULTS_WITHOUT_RECOVERY = 2
#: If there are at most this many cells, each cell is also printed on a separate line, below the
#: table.
MAX_CELLS_PRINTED = 16
#: Environment variables with the addresses of external servers. No faults are injected there.
EXTERNAL_SERVER_VARIABLES = (
    "DATABASE_URL",
    "REDIS_URL",
    "REDIS_LOCKS_URL",
    "REDIS_SENTINELS",
    "REDLOCK_URLS",
)


def run(
    console: Console,
    *,
    faults: Sequence[str] = (),
    locks: Sequence[str] = (),
    server: str = SERVERS[0],
    database: str = POSTGRES,
) -> int:
    """Inject faults under each strategy. Return the exit code; see choose_exit_code().

    Prints the verdicts as a table and writes the results: summary.json after every fault, the other
    files at the end, even if the run ends early.

    faults    names of FAULTS; empty: all, or DATABASE_FAULTS on another database than PostgreSQL
    locks     names of strategies; empty: all
    server    the application server of the nodes, one of SERVERS
    database  the database of the shop, one of DATABASES

    Raises StackError if none of the faults affects any of the strategies, or if an external server
    is configured. Raises EmbeddedError if a server does not start.
    """
    default_faults = FAULTS if database == POSTGRES else DATABASE_FAULTS
    fault_names = [name for name in FAULTS if name in (faults or default_faults)]
    table_filename = make_results_filename("faults", database)
    refuse_external_servers()
    with (
        Output(console) as out,
        Testbed(
            log=out.log,
            progress=out.progress,
            threads=THREADS_PER_NODE,
            server=server,
            database=database,
        ) as testbed,
    ):
        strategies = testbed.strategies(locks)
        fault_names = [name for name in fault_names if find_affected_strategies(name, strategies)]
        if not fault_names:
            raise StackError("none of these faults affects any of these locks: choose others")
        cells: list[Cell] = []
        # The summary contains this list itself, to which the cells of each fault are added below.
        summary = out.make_summary(testbed, cells)
        try:
            for fault_cells in _inject_faults(fault_names, strategies, testbed, out):
                cells += fault_cells
                tables.write_summary(out.path, summary)
        finally:
            if cells:
                titles = {name: FAULTS[name].title for name in fault_report.list_fault_names(cells)}
                table = fault_report.make_markdown(summary, cells)
                events = testbed.events()
                out.write_results(
                    summary,
                    events,
                    table_filename,
                    table,
                    title="every fault",
                    faults=titles,
                )
    _print_cells(console, cells)
    out.print_files("summary.json", table_filename, html_report.FILENAME)
    return choose_exit_code(cells)


def _print_cells(console: Console, cells: Sequence[Cell]) -> None:
    """Print the tables, their legend, the unexpected verdicts and the totals.

    A cell is one strategy under one fault. If there are few cells, print each of them, too.
    """
    console.print()
    for table in fault_report.make_tables(cells, console.width):
        console.print(table)
    console.print(fault_report.make_column_legend(cells), style="dim")
    if len(cells) <= MAX_CELLS_PRINTED:
        console.print("", *fault_report.make_cell_lines(cells), sep="\n")
    unexpected_cells = [cell for cell in cells if not cell["as_expected"]]
    for cell in unexpected_cells:
        console.print(fault_report.describe_unexpected_cell(cell), style="red", markup=False)
    console.print(
        f"\n{format_count(len(cells), 'cell')}, {len(unexpected_cells)} not as expected",
        style="bold",
    )


def choose_exit_code(cells: Sequence[Cell]) -> int:
    """Return the exit code of a run with these cells, each one strategy under one fault.

    It is 0 if every cell is as expected, and EXIT_CODES["unknown"] if all unexpected verdicts are
    inconclusive. Otherwise it is 1: a verdict disproves what is expected of a strategy, or in CI a
    server is missing.
    """
    unexpected_cells = [cell for cell in cells if not cell["as_expected"]]
    if not all(is_inconclusive(cell) for cell in unexpected_cells):
        return 1
    return EXIT_CODES["unknown"] if unexpected_cells else 0


def is_inconclusive(cell: Cell) -> bool:
    """Return whether the unexpected verdict of a cell proves nothing about the strategy.

    This is the case if the verdict is `unknown`. It is also the case if the strategy is flawed but
    was exact: then the fault came at the wrong moment, as can happen on a busy machine.

    The field `wrong` of a cell has complaints about the strategy's behaviour. A cell with
    complaints is never inconclusive.
    """
    if cell["wrong"]:
        return False
    flaw_was_missed = cell["expected"] != "exact" and cell["verdict"] == "exact"
    return cell["verdict"] == "unknown" or flaw_was_missed


def _inject_faults(
    fault_names: Sequence[str],
    strategies: Sequence[StrategyFacts],
    testbed: Testbed,
    out: Output,
) -> Iterator[list[Cell]]:
    """Inject one fault after the other, and yield the cells of each fault.

    A cell is one strategy under one fault, with its verdict. A fault has a cell for each strategy
    that it can affect.

    If the servers do not come back after a fault, the verdict of its cells is `unknown`. After
    MAX_FAULTS_WITHOUT_RECOVERY such faults in a row, no further fault is injected, and the verdict
    of the remaining cells is `unknown`, too.
    """
    faults_without_recovery = 0
    for number, name in enumerate(fault_names, 1):
        out.progress(f"{number}/{len(fault_names)}  {name}: {FAULTS[name].title}")
        started_at = time.monotonic()
        try:
            if faults_without_recovery >= MAX_FAULTS_WITHOUT_RECOVERY:
                raise StackError("the servers did not come back after the faults before this one")
            cells = _inject_fault(name, strategies, testbed)
            faults_without_recovery = 0
        except Exception as error:  # run_fault() raises only if the servers did not come back
            faults_without_recovery += 1
            why = f"{type(error).__name__}: {error}"
            cells = make_unknown_cells(name, find_affected_strategies(name, strategies), why)
        yield cells
        # This runs after the caller has written summary.json.
        out.console.print(fault_report.make_fault_line(name, cells, time.monotonic() - started_at))


def _inject_fault(name: str, strategies: Sequence[StrategyFacts], testbed: Testbed) -> list[Cell]:
    """Inject one fault under all strategies, and return a cell with the verdict on each strategy.

    The fault is injected once, while buyers buy under all strategies at the same time. SQLite
    allows only one writing transaction at a time, so there the fault would hit the transaction of
    one strategy only. On SQLite it is therefore injected once for each strategy.
    """
    vendor = DATABASES[testbed.database].vendor
    if reason := find_reason_not_to_inject(name, vendor):
        return [
            make_not_run_cell(name, strategy, reason)
            for strategy in find_affected_strategies(name, strategies)
        ]
    if vendor != "sqlite":
        return run_fault(FAULTS[name](testbed), strategies)
    cells: list[Cell] = []
    for strategy in strategies:
        cells += run_fault(FAULTS[name](testbed), [strategy])
    return cells


def refuse_external_servers() -> None:
    """Raise StackError if an environment variable has the address of an external server."""
    embedded.read_env()
    variables = [name for name in EXTERNAL_SERVER_VARIABLES if os.environ.get(name)]
    if variables:
        raise StackError(
            "faults are injected only on servers that the run starts itself: unset "
            f"{' and '.join(variables)}"
        )
