"""The command line: tables, messages and errors in the terminal, options and their defaults.

A run is the result of one rush (many buyers at the same moment) under one strategy.
"""

import inspect
import io
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from redis import RedisError
from rich.console import Console
from rich.table import Table

from loadtest.commands import output
from loadtest.commands.main import COMMANDS, parse, run_printing_errors
from loadtest.commands.output import Output, set_up_console
from loadtest.commands.rushes import RushOptions
from loadtest.expected import EXPECTED
from loadtest.faults import FAULTS, fault_report
from loadtest.report import tables as report
from loadtest.tests.checkout import ROOT
from loadtest.tests.history_builder import sequential_sale
from loadtest.tests.sample_reports import make_judged_run, make_summary


def make_run(lock: str, seconds: float, **changes: Any) -> Any:
    """Return the run of an exact rush of three buyers for two units.

    seconds  how long the rush took
    changes  fields that are added or replaced
    """
    percentiles = {"p50": 1000.4, "p95": 1500.0, "max": 1600.0}
    exact_run = make_judged_run(
        sequential_sale(), lock, "rush", buy_ms=percentiles, duration_s=seconds
    )
    return {**exact_run, **changes}


def test_markdown_has_the_setup_and_the_date_of_the_runs() -> None:
    """The line below the table has the options, the machine, the versions and the date."""
    runs = [
        make_run("row-lock", 2.0),
        make_run("redis", 1.0),
        make_run("process", 1.0, fault=report.ONE_PROCESS),
    ]
    assert report.markdown(make_summary(*runs), ("orders", "p50 ms", "time / row-lock")) == (
        "| lock | verdict | orders | p50 ms | time / row-lock |\n"
        "|---|---|--:|--:|--:|\n"
        "| `row-lock` | **EXACT** | 2 | 1000 | 1.00 |\n"
        "| `redis` | **EXACT** | 2 | 1000 | 0.50 |\n"
        "| `process` (one process) | **EXACT** | 2 | 1000 | 0.50 |\n"
        "\n"
        "3 buyers, 2 units, hold 0 ms; 2 nodes of 2 workers and 100 threads; 2 CPUs, "
        "Python 3.11.7, PostgreSQL 18.4, Valkey 9.1.2; 2026-11-21.\n"
    )


def test_single_worker_is_written_in_the_singular() -> None:
    """The nodes have one worker each."""
    summary: Any = {**make_summary(make_run("redis", 1.0)), "workers": 1, "threads": 160}
    assert "2 nodes of 1 worker and 160 threads; " in report.describe_setup(summary)


def test_strategy_that_was_not_run_has_no_figures() -> None:
    """The strategy `zookeeper` was not run, because its server is missing."""
    left_out_run: Any = {
        "lock": "zookeeper",
        "fault": "rush",
        "verdict": "not_run",
        "as_expected": True,
    }
    runs = [make_run("redis", 1.0), left_out_run]
    text = report.markdown(make_summary(*runs), ("orders", "seconds"))
    assert "| `zookeeper` | **NOT_RUN** |  |  |" in text


def test_durations_are_not_compared_if_the_reference_was_not_run() -> None:
    """The column divides each duration by the duration of `row-lock`, which was not run."""
    reference: Any = {"lock": "row-lock", "fault": "rush", "verdict": "not_run"}
    runs = [make_run("redis", 1.0), {**reference, "as_expected": False}]
    text = report.markdown(make_summary(*runs), ("orders", "time / row-lock"))
    assert "| `redis` | **EXACT** | 2 | - |" in text


def test_table_has_a_column_for_unanswered_buyers_if_there_are_any() -> None:
    """The column counts buyers who were not ready, sent no request or got no final answer."""
    unanswered_run = make_run("none", 1.0, never_arrived=1, never_asked=2, never_answered=30)
    text = report.markdown(make_summary(unanswered_run), report.DEMO_COLUMNS)
    header, _, row, *_ = text.splitlines()
    assert "| no answer |" in header
    assert "| 33 |" in row
    all_answered = report.markdown(make_summary(make_run("none", 1.0)), report.DEMO_COLUMNS)
    assert "no answer" not in all_answered


def test_name_of_a_target_is_printed_without_interpreting_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rich would interpret `[/x]` as markup. The name is in a line of progress and in the table."""
    monkeypatch.setattr(output, "RESULTS", tmp_path)
    monkeypatch.setattr(output, "VAR", tmp_path)
    text = io.StringIO()
    console = Console(file=text, width=120)
    name = "[/x] shop"
    with Output(console) as out:
        out.progress(f"1/10: {name}")
        console.print(report.make_sheet([make_run(name, 1.0)], ("orders",)).table())
    assert text.getvalue().count(name) == 2


def test_reason_is_printed_without_interpreting_markup() -> None:
    """A reason may quote keys and answers of a shop, which may look like the markup of Rich."""
    console = Console(file=io.StringIO(), width=200)
    run = make_run("none", 1.0, as_expected=False, why="x[/red][bold]</script> bought")
    report.print_without_markup(console, report.explain_unexpected([run]))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "none: x[/red][bold]</script> bought\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--repeat 3", "unrecognized arguments: --repeat 3"),
        ("target shop.py", "the following arguments are required: --host"),
        ("--nodes 9", "'9' is not a whole number from 1 to 8"),
        ("--lock ,", "no names in ',': list some, or omit the option"),
        ("--lock redis,nonsense", "unknown lock: nonsense; there are none, autocommit, process, "),
        ("faults --fault earthquake", "unknown fault: earthquake; there are crash, slow, "),
        ("--buyers 0", "'0' is not a whole number from 1 to 20000"),
        ("chaos --minutes nan", "'nan' is not a number"),
        ("nonsense", "invalid choice: 'nonsense'"),
        ("load --clients 9999", "'9999' is not a whole number from 1 to 2000"),
        ("load --seconds 601", "'601' is not a number from 0.5 to 600"),
        ("load --host http://shop.example", "unrecognized arguments: --host http://shop.example"),
    ],
)
def test_wrong_arguments_are_refused_with_a_message(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arguments that do not begin with a command are those of the command `demo`."""
    with pytest.raises(SystemExit) as refusal:
        parse(arguments.split(), "")
    assert refusal.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "defaults"),
    [
        ("demo", {"lock": "none,token,redis", "stock": "100", "buyers": "200"}),
        ("matrix", {"lock": "all", "stock": "100"}),
        (
            "faults",
            {
                "lock": "all",
                "fault": (
                    "all of them, or on a database other than postgres: pause, unknown-commit, "
                    "db-kill"
                ),
                "server": "gthread",
            },
        ),
        ("load", {"lock": "none,row-lock,conditional,redis", "stock": "20000", "seconds": "10"}),
        ("target", {"stock": "100", "repeat": "10", "deadline": "60"}),
        ("serve", {"lock": "none", "nodes": "2"}),
    ],
)
def test_help_has_the_defaults_of_the_command(
    command: str,
    defaults: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the text of --help, the line of each option ends with its default."""
    monkeypatch.setenv("COLUMNS", "300")  # wide enough for each option on one line
    with pytest.raises(SystemExit):
        parse([command, "--help"], "")
    help_text = capsys.readouterr().out
    # argparse begins a new line after a long option, however wide the terminal is.
    lines = re.sub(r"\n {8,}", " ", help_text).splitlines()
    for name, default in defaults.items():
        (line,) = [line for line in lines if line.lstrip().startswith(f"--{name} ")]
        assert line.endswith(f"; default: {default}"), line


@pytest.mark.parametrize("command", ["faults", "chaos", "target"])
def test_defaults_of_options_are_those_of_the_function(command: str) -> None:
    """Each option has the default of the same parameter of the command's function.

    The other commands (demo, matrix, load and serve) take their defaults from a dataclass.
    """
    required_arguments = ["shop.py", "--host", "http://127.0.0.1:1"] if command == "target" else []
    options = vars(parse([command, *required_arguments], description=""))
    for name, parameter in inspect.signature(COMMANDS[command]).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            assert options[name] == parameter.default, name


@pytest.mark.parametrize("command", ["demo", "matrix", "serve"])
def test_defaults_are_those_of_rush_options(command: str) -> None:
    """Only `demo` has the default strategies of RushOptions. The others use all strategies."""
    options = vars(parse([command], ""))
    del options["command"]
    defaults = asdict(RushOptions())
    if command != "demo":
        defaults["locks"] = ()  # all strategies
    assert options == {name: defaults[name] for name in options}


def test_option_lock_is_parsed_as_a_list() -> None:
    """--lock becomes the parameter `locks`. Spaces and a comma at the end are allowed."""
    options = parse(["matrix", "--lock", "none, redis,", "--nodes", "3"], "")
    assert options.command == "matrix"
    assert options.locks == ["none", "redis"]
    assert options.nodes == 3


@pytest.mark.parametrize("arguments", [[], ["--buyers", "5"]])
def test_demo_is_the_default_command(arguments: list[str]) -> None:
    """The arguments have no command."""
    assert parse(arguments, "").command == "demo"


def test_ctrl_c_during_the_imports_prints_nothing(tmp_path: Path) -> None:
    """SIGINT comes while the command imports the library `rich`.

    Here `rich` is a module that prints a line when it is imported, and then waits.
    """
    (tmp_path / "rich").mkdir()
    waiting_module = "import sys; print('importing', flush=True); sys.stdin.read()"
    (tmp_path / "rich" / "__init__.py").write_text(waiting_module)
    command = subprocess.Popen(
        [sys.executable, "-m", "loadtest"],
        cwd=ROOT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert command.stdout is not None
    assert command.stdout.readline() == "importing\n"
    command.send_signal(signal.SIGINT)
    console_output, _ = command.communicate(timeout=20)
    assert (console_output, command.returncode) == ("", 130)


@pytest.mark.parametrize(("encoding", "printed"), [("latin-1", "? ? ü"), ("utf-8", "✓ ✗ ü")])
def test_characters_outside_the_encoding_are_replaced(
    encoding: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the terminal's encoding has no check mark, a question mark is printed instead."""
    output_bytes = io.BytesIO()
    stream = io.TextIOWrapper(output_bytes, encoding=encoding, write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    set_up_console().print("✓ ✗ ü")
    assert output_bytes.getvalue().decode(encoding) == f"{printed}\n"


def render_as_text(table: Table, width: int) -> str:
    """Return the text of a table in a terminal with this many columns."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(table)
    return cast(io.StringIO, console.file).getvalue()


def make_widest_runs(as_expected: bool = True) -> list[Any]:
    """Return a run of every strategy, with the largest figures that have to fit into a table.

    as_expected  whether the runs have the expected verdicts
    """
    return [
        make_run(
            lock,
            123.45,
            fault=fault,
            verdict=expected if as_expected else "undersold",
            expected=expected,
            as_expected=as_expected,
            orders=20_000,
            stock_left=10_000,
            oversold=10_000,
            lost_updates=10_000,
            buy_ms={"p50": 12_345.6, "p95": 12_345.6},
        )
        for lock, row in EXPECTED.items()
        for fault, expected in row.items()
        if fault in ("rush", report.ONE_PROCESS)
    ]


@pytest.mark.parametrize("columns", [report.DEMO_COLUMNS, report.MATRIX_COLUMNS])
@pytest.mark.parametrize("runs", [make_widest_runs(), make_widest_runs(as_expected=False)])
def test_large_figures_are_not_cut_in_a_table(runs: list[Any], columns: tuple[str, ...]) -> None:
    """The table fits into a terminal of 100 columns.

    If a verdict is not the expected one, the expected one is in parentheses behind it.
    """
    text = render_as_text(report.make_sheet(runs, columns).table(), 100)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 100
    for run in runs:
        assert f"{report.make_run_label(run)} " in text
    assert runs[0]["verdict"].upper() in text
    shows_expected_verdicts = "(expected" in text
    assert shows_expected_verdicts == (not runs[0]["as_expected"])
    assert "orders" in text


def test_matrix_fits_into_80_columns() -> None:
    """The table has all strategies and figures of a usual size. No figure ends in an ellipsis."""
    figures = {"stock_left": 100, "orders": 200, "lost_updates": 199, "duration_s": 2.34}
    percentiles = {"p50": 1234.0, "p95": 1234.0}
    runs: list[Any] = [{**run, **figures, "buy_ms": percentiles} for run in make_widest_runs()]
    text = render_as_text(report.make_sheet(runs, report.MATRIX_COLUMNS).table(), 80)
    assert "…" not in text
    assert "row-lock" in text.splitlines()[1]


def make_cells() -> list[Any]:
    """Return all cells of the matrix of faults: the results of each strategy under each fault."""
    return [
        {"lock": lock, "fault": fault, "verdict": "undersold", "as_expected": False}
        for lock, row in EXPECTED.items()
        for fault in row
        if fault in FAULTS
    ]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_wide_matrix_of_faults_continues_in_another_table(width: int) -> None:
    """The matrix has a column for each fault, with a number, and a row for each strategy.

    If the terminal is too narrow, there are several tables, each with some of the columns.
    """
    cells = make_cells()
    tables = fault_report.make_tables(cells, width)
    texts = [render_as_text(table, width) for table in tables]
    headings = [heading for text in texts for heading in text.splitlines()[0].split()]
    numbers = [int(heading) for heading in headings if heading != "lock"]
    assert numbers == list(range(1, len(FAULTS) + 1))
    strategy_count = len({cell["lock"] for cell in cells})
    for text in texts:
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= width
        assert len(text.splitlines()) == 1 + strategy_count


def test_line_of_a_cell_has_its_orders_and_its_recovery() -> None:
    """A cell is the result of a strategy under a fault. Each cell has one line.

    The line has the orders, the units left, and the time from the fault to the next sale. An
    inconclusive cell, whose field `missing` has the reason, has no line.
    """
    crashed_cell: Any = {
        "lock": "setnx",
        "fault": "crash",
        "verdict": "deadlock",
        "orders": 0,
        "initial_stock": 10,
        "stock_left": 10,
        "recovery_s": None,
        "missing": "",
    }
    sold_cell: Any = {
        **crashed_cell,
        "verdict": "exact",
        "orders": 10,
        "stock_left": 0,
        "recovery_s": 0.904,
    }
    late_cell: Any = {
        **sold_cell,
        "fault": "late-release",
        "verdict": "oversold",
        "orders": 11,
        "recovery_s": None,
    }
    untested_cell: Any = {**sold_cell, "missing": "no ZooKeeper"}
    assert fault_report.make_cell_lines([crashed_cell, sold_cell, late_cell, untested_cell]) == [
        "setnx under crash: 0 orders for 10 units, 10 left; sales have stopped",
        "setnx under crash: 10 orders for 10 units, 0 left; "
        "the next sale came 0.90 s after the fault",
        "setnx under late-release: 11 orders for 10 units, 0 left",
    ]


@pytest.fixture
def _leave_signals_and_servers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the functions that would change signal handlers and servers of the test's process."""
    for name in ("end_on", "end_on_hangup_and_sigterm", "embedded.detach"):
        monkeypatch.setattr(f"loadtest.commands.main.{name}", lambda *_: None)


@pytest.mark.usefixtures("_leave_signals_and_servers_alone")
@pytest.mark.parametrize("error", [RedisError("refused"), psycopg.OperationalError("refused")])
def test_error_of_a_server_is_one_line(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is printed without a traceback. The exit code is 2: 1 is for a wrong verdict."""

    def run(console: Console) -> int:
        raise error

    assert run_printing_errors(run) == 2
    error_class = type(error).__name__
    message = f"a server failed during the run: {error_class}: refused; see its log in var/\n"
    assert capsys.readouterr().out == message


@pytest.mark.usefixtures("_leave_signals_and_servers_alone")
@pytest.mark.parametrize("file", ["results", "results/latest/folder"])
def test_results_path_that_is_not_a_folder_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    results: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
) -> None:
    """A file exists where the folder results/ should be, or a folder where the link latest should.

    The command prints which path is blocked.
    """
    monkeypatch.setattr(output, "VAR", tmp_path / "var")
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()

    def run(console: Console) -> int:
        with Output(console) as out:
            out.finish()
        return 0

    assert run_printing_errors(run) == 2
    assert "blocks this path; move it away" in capsys.readouterr().out
    assert not [*tmp_path.glob("var/*.log"), *results.glob(".latest-*")]


def test_results_are_written_even_if_the_page_fails(
    monkeypatch: pytest.MonkeyPatch, results: Path, tmp_path: Path
) -> None:
    """If report.html cannot be made, the other files are written, and the log has the error.

    Here an event lacks its field `f`, the name of the event.
    """
    monkeypatch.setattr(output, "VAR", tmp_path / "var")
    console_output = io.StringIO()
    request: Any = {"by": "buyer", "attempt": "x/buyer-0", "t": 1, "type": "invoke", "f": "buy"}
    event_without_name: Any = {"by": "node", "attempt": "x/buyer-0", "t": 2, "type": "ok"}
    runs = [make_run("redis", 1.0, attempts="x")]
    with Output(Console(file=console_output, width=200)) as out:
        out.write_results(
            make_summary(*runs),
            [request, event_without_name],
            "table.md",
            "a table",
            title="a rush",
        )
        out.print_files("summary.json", "report.html")
    names = {path.name for path in (results / "latest").iterdir()}
    assert names == {"summary.json", "history.jsonl", "table.md", "run.log"}
    assert "Traceback" in (results / "latest" / "run.log").read_text()
    assert "report.html cannot be made (KeyError: 'f')" in console_output.getvalue()
    assert console_output.getvalue().rstrip().endswith("summary.json")
