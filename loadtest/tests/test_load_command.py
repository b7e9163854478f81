"""make load: its options, what it concludes of a run, its table, and its part of docs/scale.md."""

from __future__ import annotations

import json
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from loadtest.commands import load
from loadtest.commands.arguments import parse
from loadtest.load import plan as plans
from loadtest.load import process
from loadtest.load.chosen import THREADS, Chosen
from loadtest.load.figures import Measured, Window
from loadtest.load.plan import Plan
from loadtest.report import load_page, load_table
from loadtest.stack.stack import ROOT, StackError
from loadtest.tests.loaded import run_of, summary_of, usual
from tools import readme


def chosen(*words: str) -> Chosen:
    return load.chosen(parse(["load", *words], ""))


def test_what_is_asked_for_is_what_is_loaded() -> None:
    asked = chosen(
        *("--lock", "redis,row-lock", "--clients", "8", "--seconds", "2.5", "--stock", "50"),
        *("--products", "100", "--skew", "0.9", "--nodes", "4", "--workers", "1"),
        *("--threads", "7", "--rounds", "3", "--locust-workers", "2", "--seed", "5"),
        *("--arrivals-per-second", "120", "--arrivals", "constant", "--cap", "300"),
        *("--warm-up", "0", "--hold-ms", "20"),
    )
    assert asked == Chosen(
        locks=["redis", "row-lock"], clients=8, seconds=2.5, stock=50, products=100, skew=0.9,
        nodes=4, workers=1, threads=7, rounds=3, locust_workers=2, seed=5,
        arrivals_per_second=120.0, arrivals="constant", cap=300, warm_up=0.0, hold_ms=20,
    )  # fmt: skip
    assert chosen() == Chosen()


@pytest.mark.parametrize(
    "words",
    [
        *(["--clients", "2001"], ["--clients", "0"], ["--seconds", "601"], ["--seconds", "0"]),
        *(["--arrivals-per-second", "5001"], ["--arrivals", "sometimes"], ["--products", "1001"]),
        *(["--host", "http://shop.example"], ["--buyers", "5"], ["--cap", "9999"]),
    ],
    ids=" ".join,
)
def test_what_is_beyond_the_bounds_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["load", *words], "")
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_the_options_of_load_are_refused_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["demo", "--clients", "5"], "")
    assert "unrecognized arguments: --clients 5" in capsys.readouterr().err


def test_an_empty_shop_and_processes_without_clients_are_refused() -> None:
    with pytest.raises(StackError, match="--stock 1 or more"):
        chosen("--stock", "0")
    with pytest.raises(StackError, match="fewer --locust-workers"):
        chosen("--clients", "2", "--locust-workers", "3")


def test_a_worker_has_threads_for_all_clients_of_its_node() -> None:
    assert chosen("--clients", "64", "--nodes", "2").threads_each == 32
    assert chosen("--arrivals-per-second", "10").threads_each == THREADS
    assert chosen("--threads", "3").threads_each == 3


PLAN = Plan("run", "redis", ["load-001"], [7], ["http://127.0.0.1:8001"])


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    PLAN.write(tmp_path / "plan.json")
    assert plans.read(tmp_path / "plan.json") == PLAN


@pytest.mark.parametrize(
    "beyond",
    [
        {"hosts": ["http://127.0.0.1:1", "http://192.0.2.7:80"]},
        {"clients": 2001},
        {"seconds": 601.0},
        {"arrivals_per_second": 5001.0},
    ],
    ids=str,
)
def test_a_plan_for_another_machine_or_beyond_the_bounds_is_not_run(
    tmp_path: Path, beyond: dict[str, Any]
) -> None:
    path = tmp_path / "plan.json"
    PLAN.write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **beyond}))
    with pytest.raises(ValueError, match=r"is not this machine|at most"):
        plans.read(path)


def test_locust_listens_for_its_workers_on_this_machine_alone() -> None:
    words = process.command(
        Plan("run", "redis", ["a"], [1], ["http://127.0.0.1:1"], locust_workers=3)
    )
    given = dict(pairwise(words))
    assert given["--processes"] == "3"
    assert given["--master-bind-host"] == given["--master-host"] == "127.0.0.1"
    assert given["--master-bind-port"] == given["--master-port"]
    assert "--processes" not in process.command(PLAN)


RAN = Measured([], Window(0.0, 1.0))


@pytest.mark.parametrize(
    ("expected", "verdict", "lost", "as_expected"),
    [
        ("exact", "exact", 0, True),
        ("exact", "oversold", 0, False),
        ("exact", "unknown", 12, False),
        ("oversold", "oversold", 90, True),
        ("oversold", "unknown", 90, True),  # it did not run out, and its sums are wrong already
        ("oversold", "exact", 0, False),
    ],
)
def test_a_verdict_is_compared_with_that_of_the_rush(
    expected: str, verdict: str, lost: int, as_expected: bool
) -> None:
    run = {"expected": expected, "verdict": verdict, "lost_updates": lost, "why": "why"}
    assert load.conclusion({**run, "locust_busy": 0.1}, RAN)["as_expected"] is as_expected


def test_a_failed_measurement_is_never_as_expected() -> None:
    failed = Measured([], Window(0.0, 1.0), why="a worker was lost")
    run = {"expected": "exact", "verdict": "exact", "lost_updates": 0, "why": ""}
    assert load.conclusion(run, failed) == {"as_expected": False, "why": "a worker was lost"}


def test_a_locust_without_a_moment_to_spare_is_named() -> None:
    run = run_of("redis", locust_busy=0.97)
    assert run["as_expected"]
    assert "its own limit was measured: give it --locust-workers" in run["why"]


def test_medians_are_over_the_rounds_and_unknown_where_a_round_is() -> None:
    rates = enumerate((9.0, 5.0, 8.0), 1)
    runs = [run_of("redis", number=number, sold_per_s=rate) for number, rate in rates]
    runs[1]["jain"] = None
    found = load.medians(runs)["redis"]
    assert (found["sold_per_s"], found["jain"]) == (8.0, None)
    assert found["cpu_ms_per_sale"]["PostgreSQL"] is None


def test_the_errors_of_one_round_are_not_hidden_by_the_other_rounds() -> None:
    """The median of 0, 4,000 and 0 is 0: a table with EXACT and no errors, beside sales a second
    that were made while most buyers were refused."""
    runs = [run_of("redis", number=n, errors=errors) for n, errors in enumerate((0, 4000, 0), 1)]
    assert load.medians(runs)["redis"]["errors"] == 4000


def test_the_table_says_unknown_for_what_was_not_measured_and_never_0() -> None:
    rows = load_table.markdown(usual()).splitlines()
    assert rows[0].startswith("| lock | verdict | sold/s | p50 ms | p99 ms | p99 / p50 | Jain |")
    assert rows[2].startswith("| `none` | **LOST UPDATES** | 9 | 500 | ")
    assert rows[3].startswith("| `redis` | **EXACT** | 9 | 500 | ")
    cells = [cell.strip() for cell in rows[3].split("|")]
    assert cells[-5:-1] == ["2.20", "unknown", "0.00", "0.55"]


def test_the_table_names_the_run_and_the_command_that_repeats_it() -> None:
    text = load_table.markdown(summary_of(run_of("redis"), products=100, nodes=4, rounds=3))
    assert 'make load ARGS="--lock redis --products 100 --nodes 4 --rounds 3 --skew 1.1"' in text
    assert text.count("Medians of 3 interleaved rounds of ") == 1
    assert "in 1 sale that is exact; stock asked is orders + left." in text
    assert "2 CPUs for all of it, Python 3.12.1, PostgreSQL 18.0, Valkey 9.1" in text


def test_one_round_is_not_called_a_median_of_rounds() -> None:
    text = load_table.markdown(summary_of(run_of("redis")))
    assert "One round of " in text
    assert "Medians" not in text


def test_the_page_explains_its_columns() -> None:
    legend = load_page.page_data(usual())["legend"]
    assert any(line.startswith("Jain: 1 if every client") for line in legend)


def test_the_command_under_a_table_asks_for_the_same_again() -> None:
    summary = summary_of(
        run_of("none"), arrivals_per_second=350.0, cap=300, warm_up=0.5, rounds=3, stock=500,
        hold_ms=9, seed=7,
    )  # fmt: skip
    words = load_table.command(summary).partition('ARGS="')[2].rstrip('"').split()
    again = chosen(*words)
    assert {name: getattr(again, name) for name in summary["load"]} == summary["load"]


def test_a_narrow_terminal_gets_fewer_columns_and_says_so() -> None:
    console = Console(width=60, record=True, file=StringIO())
    console.print(load_table.table(usual(), console))
    printed = console.export_text()
    assert "left out" in printed
    assert all(len(line) <= 60 for line in printed.splitlines())


def test_the_page_has_the_medians_of_each_second_and_of_all_buyers() -> None:
    data = load_page.page_data(usual())
    assert [row["said"] for row in data["rows"]] == ["LOST UPDATES", "EXACT"]
    assert data["seconds"]["redis"][0] == [0, 9, 50.0, 100.0]
    assert data["latency"][1][:2] == ["redis", 300]


def written(results: Path, name: str, summary: Any) -> None:
    folder = results / f"2026-01-02T03-04-{name}"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / load_table.NAME).write_text(load_table.markdown(summary))


def test_the_page_of_scale_has_the_newest_whole_run_of_each_kind(tmp_path: Path) -> None:
    whole = [run_of("redis", number=n) for n in (1, 2, 3)]
    written(tmp_path, "01", summary_of(*whole, rounds=3))
    written(tmp_path, "02", summary_of(*whole, rounds=3, clients=9))
    written(tmp_path, "03", summary_of(run_of("redis"), rounds=1, clients=10))
    written(tmp_path, "04", summary_of(*whole, rounds=3, products=100, nodes=4))
    written(tmp_path, "05", summary_of(*whole, rounds=3, products=100, nodes=1))
    written(tmp_path, "06", summary_of(*whole, rounds=3, arrivals_per_second=400.0))
    written(tmp_path, "08", summary_of(*whole, rounds=3, hold_ms=50))
    failed = [run_of("redis", "unknown", number=n) for n in (1, 2, 3)]
    written(tmp_path, "07", summary_of(*failed, rounds=3, clients=11))
    text = readme.load_tables(tmp_path)
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### One hot product, 9 clients (closed model), 2 nodes",
        "### One hot product, 400 arrivals a second (open model), 2 nodes",
        "### One hot product, 64 clients (closed model), hold 50 ms, 2 nodes",
        "### 100 products, Zipf skew 1.1, 64 clients (closed model), 1 node",
        "### 100 products, Zipf skew 1.1, 64 clients (closed model), 4 nodes",
    ]


def test_docs_scale_is_written_between_its_markers_and_nothing_else_of_it(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "scale.md"
    page.write_text(f"# Scale\n\n{readme.begin('load')}\nold\n{readme.end('load')}\n\nthe rest\n")
    written(tmp_path / "results", "01", usual())
    readme.write_load_tables(tmp_path / "results", page)
    text = page.read_text()
    assert text.startswith("# Scale\n")
    assert text.endswith("\n\nthe rest\n")
    assert "\nold\n" not in text
    assert "### One hot product, 64 clients (closed model), 2 nodes" in text


def test_the_tables_of_docs_scale_are_those_that_a_load_wrote() -> None:
    text = (ROOT / "docs" / "scale.md").read_text()
    part = text.partition(readme.begin("load"))[2].partition(readme.end("load"))[0]
    assert "make load ARGS=" in part
    assert "closed model" in part
    assert "open model" in part
