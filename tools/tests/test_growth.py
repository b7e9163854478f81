"""The table of `make growth` is computed correctly from samples and rushes. No server is needed.

`make growth` runs rushes of more and more buyers, who arrive at once. It samples the memory, the
threads and the processor time of the parts: the nodes of the shop, the servers and Locust.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tools import growth, readme
from tools.growth import MACHINE, NODES, Sample
from tools.tests.conftest import make_summary


def make_sample(taken_at: float, cpu_seconds_by_pid: dict[int, float]) -> Sample:
    """Return a sample with the processor seconds of the nodes' processes."""
    return Sample(taken_at, memory=0, threads=0, cpu={NODES: cpu_seconds_by_pid})


def test_processor_time_is_measured_during_the_rush_only() -> None:
    """The rush, in which all buyers arrive at once, lasts from 1.0 to 2.0 s.

    The process with the pid 2 starts during the rush.

    A sample has the processor seconds of each process since its start. During the rush, process 1
    computes for 0.5 s and process 2 for 0.1 s. Together this is 60 % of a second, and process 1,
    the busiest, used 50 %.
    """
    samples = [
        make_sample(0.0, {1: 0.0}),
        make_sample(1.0, {1: 1.0}),
        make_sample(2.0, {1: 1.5, 2: 0.1}),
        make_sample(9.0, {1: 9.0, 2: 9.0}),
    ]
    percentages = growth.compute_cpu_percentages(samples, started_at=1.0, seconds=1.0)
    assert percentages == {"nodes": 60.0, "nodes (one)": 50.0}


def test_sample_has_memory_threads_and_processor_time() -> None:
    """The samples are taken from this process, in the place of a node. Locust has no process."""
    with growth.sample_while_running({NODES: [os.getpid()], "Locust": []}) as samples:
        pass
    first_sample, *later_samples = samples
    assert later_samples, "even a short block ends with a sample"
    assert first_sample.memory > 10 * growth.MB  # any Python process needs more
    assert first_sample.threads >= 1
    assert first_sample.cpu[NODES][os.getpid()] > 0
    assert first_sample.cpu["Locust"] == {}
    assert first_sample.cpu[MACHINE][0] > 0


def make_growth_run(buyers: int, server: str = "gthread") -> dict[str, Any]:
    """Return the run of a rush (all buyers arrive at once), as `make growth` writes it."""
    cpu = {"nodes": 160.4, "nodes (one)": 88.0, "Valkey": 3.0, "Locust": 61.0, "machine": 199.0}
    return {
        "lock": "redis",
        "fault": "rush",
        "verdict": "exact",
        "expected": "exact",
        "as_expected": True,
        "buyers": buyers,
        "initial_stock": 100,
        "duration_s": 2.0,
        "arrival_spread_ms": 20.4,
        "buy_ms": {"p50": 1.0, "p95": 2.0, "p99": 1990.0, "max": 2000.0},
        "requests": {"asked": 300, "full": 40, "p50": 1.0, "p99": 900.0, "max": 950.0},
        "grown": {
            "server": server,
            "nodes": 2,
            "workers": 2,
            "locust_workers": 1,
            "base_mb": 200.0,
            "peak_mb": 240.0,
            "kb_per_buyer": 40.96,
            "threads": 440,
            "cpu": cpu,
        },
    }


@pytest.mark.parametrize("option", ["--buyers", "--locust-workers", "--repeat"])
def test_number_out_of_bounds_is_refused_before_anything_starts(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The number of buyers, of Locust's workers and of repetitions must be at least 1."""
    # If main() did not refuse the number, it would call this function and return 0.
    monkeypatch.setattr(growth, "run_printing_errors", lambda run: 0)
    with pytest.raises(SystemExit, match="2"):
        growth.main([option, "0"])
    assert "'0' is not a whole number from 1 to" in capsys.readouterr().err


def test_row_has_every_figure() -> None:
    """The row of a run has a column for each figure of make_growth_run(), rounded.

    `3.2, -, 0.1, 1.2` is the processor time per buyer in milliseconds: of the nodes (160.4 % of
    2 s, divided by 1000 buyers), of PostgreSQL (not measured here), of Valkey and of Locust.
    """
    lines = growth.make_markdown(make_summary(make_growth_run(1000))).splitlines()
    assert lines[2] == (
        "| `redis` | **EXACT** | 1000 | 2 | 2.00 | 2.00 | 900 | 1990 | 20 | 240 | 41 | 440 "
        "| 3.2, -, 0.1, 1.2 | 88 | 199 |"
    )
    run = make_summary(make_growth_run(1000))["runs"][0]
    headings = ["strategy", "verdict", *growth.format_columns(run)]
    assert {line.count("|") for line in lines[:3]} == {len(headings) + 1}
    assert "2 CPUs, Python 3.13.1, PostgreSQL 18.1, Valkey 9; 2026-01-02" in lines[-1]


def test_repeated_rushes_have_a_line_with_their_spread() -> None:
    """The spread is the time between the arrival of the first and of the last buyer.

    Below the table there is a line for the three rushes of 2000 buyers, of which one has an
    unexpected verdict. The rush of 200 buyers is not repeated, so there is no line for it.
    """
    runs = [
        {**make_growth_run(2000), "arrival_spread_ms": spread} for spread in (60.0, 90.0, 140.0)
    ]
    runs[1] |= {"verdict": "unknown", "as_expected": False}
    page = growth.make_markdown(make_summary(*runs, make_growth_run(200)))
    assert [line for line in page.splitlines() if line.startswith("- ")] == [
        "- redis, 2000 buyers, 2 nodes: 2 of 3 as expected; spread 60 to 140 ms, median 90"
    ]


def test_each_table_comes_from_the_newest_complete_run_on_its_server(tmp_path: Path) -> None:
    """docs/scale.md has a table for nodes on the server gthread, and one for nodes on asgi.

    The newer results are not complete: they have only one number of buyers, an unknown verdict, or
    repeated rushes.
    """
    page = tmp_path / "docs" / "scale.md"
    page.parent.mkdir()
    tables = ("growth", "growth-asgi")
    page.write_text(
        "\n".join(
            f"{readme.format_begin_marker(name)}\n{readme.format_end_marker(name)}"
            for name in tables
        )
    )
    (tmp_path / "README.md").write_text("")
    complete_runs = [make_growth_run(size) for size in growth.DEFAULT_SIZES]
    complete_runs_on_asgi = [
        make_growth_run(size, server="asgi") for size in (*growth.DEFAULT_SIZES, 20_000)
    ]
    runs_of_one_size = [make_growth_run(1000)]
    runs_with_unknown_verdict = [
        *complete_runs,
        {**make_growth_run(5000), "verdict": "unknown", "as_expected": False},
    ]
    repeated_runs = [*complete_runs, *complete_runs]
    results_oldest_first = [
        complete_runs,
        complete_runs_on_asgi,
        runs_of_one_size,
        runs_with_unknown_verdict,
        repeated_runs,
    ]
    for number, runs in enumerate(results_oldest_first):
        folder = tmp_path / "results" / f"2026-01-02T03-04-0{number}"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps(make_summary(*runs)))
        (folder / "growth.md").write_text(growth.make_markdown(make_summary(*runs)))
    readme.main(tmp_path / "results", tmp_path)
    threads_table, asgi_table = page.read_text().split(readme.format_begin_marker("growth-asgi"))
    assert threads_table.count("**EXACT**") == len(growth.DEFAULT_SIZES)
    assert "a thread for each buyer" in threads_table
    assert asgi_table.count("**EXACT**") == len(growth.DEFAULT_SIZES) + 1
    assert "no thread for a buyer" in asgi_table
