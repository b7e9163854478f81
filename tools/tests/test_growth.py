"""The tables that `growth` computes from its samples and rushes; no server is needed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tools import growth, readme
from tools.growth import MACHINE, NODES, Sample
from tools.tests.conftest import summary


def test_share_is_measured_around_the_rush_only() -> None:
    seconds = {0.0: {1: 0.0}, 1.0: {1: 1.0}, 2.0: {1: 1.5, 2: 0.1}, 9.0: {1: 9.0, 2: 9.0}}
    samples = [Sample(t, 0, 0, {"nodes": cpu_seconds}) for t, cpu_seconds in seconds.items()]
    assert growth.cpu_percentages(samples, 1.0, 1.0) == {"nodes": 60.0, "nodes (one)": 50.0}


def test_process_figures_include_memory_threads_and_time() -> None:
    with growth.sample_while_running({NODES: [os.getpid()], "Locust": []}) as samples:
        pass
    first_sample, *later_samples = samples
    assert later_samples, "it looks at the end of a short block, too"
    assert first_sample.memory > 10 * 1024 * 1024
    assert first_sample.threads >= 1
    assert first_sample.cpu[NODES][os.getpid()] > 0
    assert first_sample.cpu["Locust"] == {}
    assert first_sample.cpu[MACHINE][0] > 0


def make_growth_run(buyers: int, server: str = "gthread") -> dict[str, Any]:
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
    monkeypatch.setattr(growth, "run_printing_errors", lambda run: 0)
    with pytest.raises(SystemExit, match="2"):
        growth.main([option, "0"])
    assert "'0' is not a whole number from 1 to" in capsys.readouterr().err


def test_line_has_every_figure() -> None:
    lines = growth.markdown(summary(make_growth_run(1000))).splitlines()
    assert lines[2] == (
        "| `redis` | **EXACT** | 1000 | 2 | 2.00 | 2.00 | 900 | 1990 | 20 | 240 | 41 | 440 "
        "| 3.2, -, 0.1, 1.2 | 88 | 199 |"
    )
    headings = growth.columns(summary(make_growth_run(1000))["runs"][0])
    assert {line.count("|") for line in lines[:3]} == {len(headings) + 3}
    assert "2 CPUs, Python 3.13.1, PostgreSQL 18.1, Valkey 9; 2026-01-02" in lines[-1]


def test_rushes_that_were_repeated_have_a_line_with_their_spread() -> None:
    runs = [
        {**make_growth_run(2000), "arrival_spread_ms": spread} for spread in (60.0, 90.0, 140.0)
    ]
    runs[1] |= {"verdict": "unknown", "as_expected": False}
    page = growth.markdown(summary(*runs, make_growth_run(200)))
    assert [line for line in page.splitlines() if line.startswith("- ")] == [
        "- redis, 2000 buyers, 2 nodes: 2 of 3 as expected; spread 60 to 140 ms, median 90"
    ]


def test_tables_come_from_the_newest_whole_run(
    tmp_path: Path,
) -> None:
    """Each table of the page comes from the newest run that has it."""
    page = tmp_path / "docs" / "scale.md"
    page.parent.mkdir()
    tables = ("growth", "growth-asgi")
    page.write_text(
        "\n".join(f"{readme.begin_marker(name)}\n{readme.end_marker(name)}" for name in tables)
    )
    (tmp_path / "README.md").write_text("")
    sizes = [make_growth_run(size) for size in growth.SIZES]
    for number, runs in enumerate(
        [
            sizes,
            [make_growth_run(size, server="asgi") for size in (*growth.SIZES, 20_000)],
            [make_growth_run(1000)],  # of one size: neither table's
            [*sizes, {**make_growth_run(5000), "verdict": "unknown", "as_expected": False}],
            [*sizes, *sizes],  # repeated: a measurement of the spread
        ]
    ):
        folder = tmp_path / "results" / f"2026-01-02T03-04-0{number}"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps(summary(*runs)))
        (folder / "growth.md").write_text(growth.markdown(summary(*runs)))
    readme.main(tmp_path / "results", tmp_path)
    threads, asgi = page.read_text().split(readme.begin_marker("growth-asgi"))
    assert threads.count("**EXACT**") == len(growth.SIZES)
    assert "a thread for each buyer" in threads
    assert asgi.count("**EXACT**") == len(growth.SIZES) + 1
    assert "no thread for a buyer" in asgi
