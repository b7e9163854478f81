import io
from typing import Any

from rich.console import Console

from loadtest.report import tables as report
from loadtest.tests.reported import summary_of


def run(lock: str, seconds: float, **changes: Any) -> Any:
    return {
        "lock": lock,
        "fault": "rush",
        "buyers": 200,
        "initial_stock": 100,
        "hold_ms": 0,
        "orders": 100,
        "stock_left": 0,
        "oversold": 0,
        "lost_updates": 0,
        "buy_ms": {"p50": 1000.4, "p95": 1500.0, "max": 1600.0},
        "duration_s": seconds,
        "verdict": "exact",
        "expected": "exact",
        "as_expected": True,
        **changes,
    }


def test_the_markdown_says_where_and_when_it_was_measured() -> None:
    runs = [run("row-lock", 2.0), run("redis", 1.0), run("process", 1.0, fault=report.ONE_PROCESS)]
    assert report.markdown(summary_of(*runs), ("orders", "p50 ms", "time / row-lock")) == (
        "| lock | verdict | orders | p50 ms | time / row-lock |\n"
        "|---|---|--:|--:|--:|\n"
        "| `row-lock` | **EXACT** | 100 | 1000 | 1.00 |\n"
        "| `redis` | **EXACT** | 100 | 1000 | 0.50 |\n"
        "| `process` (one process) | **EXACT** | 100 | 1000 | 0.50 |\n"
        "\n"
        "200 buyers, 100 units, hold 0 ms; 2 nodes of 2 workers and 100 threads; 2 CPUs, "
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
