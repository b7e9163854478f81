"""Any terminal will do, an argument that a command does not use is refused, and what tables say."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from rich.table import Table

from loadtest.commands import output
from loadtest.commands.main import COMMANDS, OPTIONS, exit_code_of, parse
from loadtest.commands.output import Output, console_on_stdout
from loadtest.expected import EXPECTED
from loadtest.faults import FAULTS, fault_report
from loadtest.report import tables as report
from loadtest.tests.checkout import ROOT
from loadtest.tests.happenings import one_after_the_other
from loadtest.tests.reported import run_of, summary_of


def run(lock: str, seconds: float, **changes: Any) -> Any:
    """An exact run: two units for three buyers, in so many seconds."""
    quick = {"p50": 1000.4, "p95": 1500.0, "max": 1600.0}
    exact = run_of(one_after_the_other(), lock, "rush", buy_ms=quick, duration_s=seconds)
    return {**exact, **changes}


def test_the_markdown_says_where_and_when_it_was_measured() -> None:
    runs = [run("row-lock", 2.0), run("redis", 1.0), run("process", 1.0, fault=report.ONE_PROCESS)]
    assert report.markdown(summary_of(*runs), ("orders", "p50 ms", "time / row-lock")) == (
        "| lock | verdict | orders | p50 ms | time / row-lock |\n"
        "|---|---|--:|--:|--:|\n"
        "| `row-lock` | **EXACT** | 2 | 1000 | 1.00 |\n"
        "| `redis` | **EXACT** | 2 | 1000 | 0.50 |\n"
        "| `process` (one process) | **EXACT** | 2 | 1000 | 0.50 |\n"
        "\n"
        "3 buyers, 2 units, hold 0 ms; 2 nodes of 2 workers and 100 threads; 2 CPUs, "
        "Python 3.11.7, PostgreSQL 18.4, Valkey 9.1.2; 2026-11-21.\n"
    )


def test_what_was_not_run_has_no_figures() -> None:
    missing: Any = {"lock": "zookeeper", "fault": "rush", "verdict": "not_run", "as_expected": True}
    runs = [run("redis", 1.0), missing]
    text = report.markdown(summary_of(*runs), ("orders", "seconds"))
    assert "| `zookeeper` | **NOT_RUN** |  |  |" in text


def test_buyers_without_an_answer_have_a_column_where_there_are_any() -> None:
    cut_off = run("none", 1.0, never_arrived=1, never_asked=2, never_answered=30)
    header, _, first, *_ = report.markdown(summary_of(cut_off), report.DEMO).splitlines()
    assert "| no answer |" in header
    assert "| 33 |" in first
    all_answered = report.markdown(summary_of(run("none", 1.0)), report.DEMO)
    assert "no answer" not in all_answered


def test_a_reason_is_printed_as_it_is_whatever_a_stranger_wrote_into_it() -> None:
    """A key, or an answer of a shop: Rich took it for markup, and the command ended in a traceback.
    A key may have no blanks, and all of these characters."""
    console = Console(file=io.StringIO(), width=200)
    odd = run("none", 1.0, as_expected=False, why="x[/red][bold]</script> bought")
    report.print_reasons(console, report.reasons([odd]))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "none: x[/red][bold]</script> bought\n"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--repeat 3", "unrecognized arguments: --repeat 3"),
        ("target shop.py", "the following arguments are required: --host"),
        ("--nodes 9", "'9' is not a whole number from 1 to 8"),
        ("--lock ,", "',' names nothing: give names, or leave it out"),
        ("--lock redis,nonsense", "unknown lock: nonsense; there are none, process, "),
        ("faults --fault earthquake", "unknown fault: earthquake; there are crash, slow, "),
        ("--buyers 0", "'0' is not a whole number from 1 to 20000"),
        ("chaos --minutes nan", "'nan' is not a number"),
        ("nonsense", "invalid choice: 'nonsense'"),
        ("load --cap 9999", "'9999' is not a whole number from 1 to 2000"),
        ("load --seconds 601", "'601' is not a number from 0.5 to 600"),
        ("load --arrivals sometimes", "invalid choice: 'sometimes'"),
        ("load --host http://shop.example", "unrecognized arguments: --host http://shop.example"),
    ],
)
def test_what_a_command_does_not_use_is_refused_with_what_to_do(
    given: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse(given.split(), "")
    assert refused.value.code == 2
    assert says in capsys.readouterr().err


def test_every_option_is_taken_by_a_command_and_none_is_the_first_command() -> None:
    assert {name for options, _ in COMMANDS.values() for name in options.split()} == set(OPTIONS)
    given = parse(["matrix", "--lock", "none, redis,", "--nodes", "2"], "")
    assert vars(given) == {"command": "matrix", "locks": ["none", "redis"], "nodes": 2}
    assert (parse([], "").command, parse(["--buyers", "5"], "").buyers) == ("demo", 5)


def test_ctrl_c_while_the_imports_run_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "rich").mkdir()
    waits = "import sys; print('importing', flush=True); sys.stdin.read()"
    (tmp_path / "rich" / "__init__.py").write_text(waits)
    started = subprocess.Popen(
        [sys.executable, "-m", "loadtest"], cwd=ROOT, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stdout.readline() == "importing\n"
    started.send_signal(signal.SIGINT)
    assert (started.communicate(timeout=20)[0], started.returncode) == ("", 130)


@pytest.mark.parametrize(("encoding", "printed"), [("latin-1", "? ? ü"), ("utf-8", "✓ ✗ ü")])
def test_signs_that_an_encoding_lacks_end_no_command(
    encoding: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    console_on_stdout().print("✓ ✗ ü")
    assert written.getvalue().decode(encoding) == f"{printed}\n"


def rendered(table: Table, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(table)
    return cast(io.StringIO, console.file).getvalue()


def every_strategy(as_expected: bool = True) -> list[Any]:
    return [
        run(
            lock,
            123.45,
            fault=fault,
            verdict=expected if as_expected else "undersold",
            expected=expected,
            as_expected=as_expected,
            orders=20_000,
            **dict.fromkeys(("stock_left", "oversold", "lost_updates"), 10_000),
            buy_ms={"p50": 12_345.6, "p95": 12_345.6},
        )
        for lock, row in EXPECTED.items()
        for fault, expected in row.items()
        if fault in ("rush", report.ONE_PROCESS)
    ]


@pytest.mark.parametrize("columns", [report.DEMO, report.MATRIX])
@pytest.mark.parametrize("runs", [every_strategy(), every_strategy(as_expected=False)])
def test_nothing_of_a_table_is_cut_however_large_its_figures(
    runs: list[Any], columns: tuple[str, ...]
) -> None:
    text = rendered(report.sheet(runs, columns).table(), 100)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 100
    for one in runs:
        assert f"{report.named(one)} " in text
    assert runs[0]["verdict"].upper() in text
    assert ("(expected" in text) is not runs[0]["as_expected"]
    assert "orders" in text


def test_eighty_columns_are_enough_for_all_of_the_matrix() -> None:
    figures = {"stock_left": 100, "orders": 200, "lost_updates": 199, "duration_s": 2.34}
    quick = {"p50": 1234.0, "p95": 1234.0}
    runs: list[Any] = [{**one, **figures, "buy_ms": quick} for one in every_strategy()]
    text = rendered(report.sheet(runs, report.MATRIX).table(), 80)
    assert "…" not in text
    assert "row-lock" in text.splitlines()[1]


def cells() -> list[Any]:
    return [
        {"lock": lock, "fault": fault, "verdict": "undersold", "as_expected": False}
        for lock, row in EXPECTED.items()
        for fault in row
        if fault in FAULTS
    ]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_matrix_of_faults_continues_below_where_it_is_too_wide(width: int) -> None:
    found = fault_report.tables(cells(), width)
    texts = [rendered(table, width) for table in found]
    headings = [text.splitlines()[0].split() for text in texts]
    numbers = [int(number) for heading in headings for number in heading if number != "lock"]
    assert numbers == list(range(1, len(FAULTS) + 1))
    for text in texts:
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= width
        assert len(text.splitlines()) == len({cell["lock"] for cell in cells()}) + 1


def test_a_cell_in_figures_says_what_was_sold_and_when_again() -> None:
    crashed: Any = {"lock": "setnx", "fault": "crash", "verdict": "deadlock", "orders": 0}
    crashed |= {"initial_stock": 10, "stock_left": 10, "recovery_s": None, "missing": ""}
    sold: Any = {**crashed, "verdict": "exact", "orders": 10, "stock_left": 0, "recovery_s": 0.904}
    late: Any = {**sold, "fault": "late-release", "verdict": "oversold", "orders": 11}
    late |= {"recovery_s": None}
    missing: Any = {**sold, "missing": "no ZooKeeper"}
    assert fault_report.figures([crashed, sold, late, missing]) == [
        "setnx under crash: 0 orders for 10 units, 10 left; nobody buys any more",
        "setnx under crash: 10 orders for 10 units, 0 left; "
        "the next sale came 0.90 s after the fault",
        "setnx under late-release: 11 orders for 10 units, 0 left",
    ]


@pytest.mark.parametrize("taken", ["results", "results/latest/folder"])
def test_results_with_something_else_in_their_place_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, results: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], taken: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(output, "VAR", tmp_path / "var")
    # Of this process, which has servers for all tests.
    for name in ("end_on", "end_on_hangup_and_sigterm", "embedded.detach"):
        monkeypatch.setattr(f"loadtest.commands.main.{name}", lambda *_: None)
    place = tmp_path / taken
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()

    def run(console: Console) -> int:
        with Output(console) as out:
            out.finish()
        return 0

    assert exit_code_of(run) == 2
    assert "move what is in its way elsewhere" in capsys.readouterr().out
    assert not [*tmp_path.glob("var/*.log"), *results.glob(".latest-*")]
