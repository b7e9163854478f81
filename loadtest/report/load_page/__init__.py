"""report.html of a load run: how long buyers waited, over time and in all, by strategy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from loadtest.judge.run import Summary
from loadtest.load.load_run import LoadRun
from loadtest.report import html, load_table

NAME = html.NAME
HERE = Path(__file__).parent
#: In this order, after the shared dom.js: each may use those before it.
SCRIPTS = (html.HERE / "words.js", html.HERE / "latency.js", HERE / "load.js")


def write(folder: Path, summary: Summary) -> Path:
    """Write report.html into a folder. Returns its path."""
    path = folder / NAME
    page = html.page(
        HERE / "load.html",
        SCRIPTS,
        page_data(summary),
        heading="Sustained sales",
        waits="Time to answer, of all buyers",
    )
    path.write_text(page, encoding="utf-8")
    return path


def page_data(summary: Summary) -> dict[str, Any]:
    """What the page draws.

    legend   what the columns mean, a line each
    rows     heads, and a line of texts for each strategy, with its worst verdict
    seconds  by strategy: [second, units sold, p50, p99], medians over the rounds
    latency  [strategy, purchases, milliseconds at each of figures.BOX], medians over the rounds
    """
    names = load_table.columns(summary)
    runs: Sequence[LoadRun] = summary["runs"]  # type: ignore[assignment]
    ran = [run for run in runs if run["verdict"] != "not_run"]
    by_lock = {lock: [run for run in ran if run["lock"] == lock] for lock in summary["medians"]}
    return {
        "title": load_table.title(summary),
        "where": load_table.where(summary).replace("`", ""),
        "heads": names,
        "rows": [
            {
                **{name: run.get(name) for name in ("lock", "verdict", "expected", "as_expected")},
                "said": load_table.verdict_text(run),
                "figures": load_table.figures(summary, run, names),
            }
            for run in load_table.worst(summary)
        ],
        "notes": load_table.notes(runs),
        "legend": load_table.LEGEND.strip().splitlines(),
        "seconds": {lock: over_rounds(same) for lock, same in by_lock.items()},
        "latency": [
            [lock, sum(run["buyers"] for run in same), _medians([run["box_ms"] for run in same])]
            for lock, same in by_lock.items()
        ],
    }


def over_rounds(runs: Sequence[LoadRun]) -> list[list[float]]:
    """For each second that every round has: its number, and the medians of what it has."""
    rounds = [{int(second): rest for second, *rest in run["by_second"]} for run in runs]
    seconds = sorted(set.intersection(*map(set, rounds))) if rounds else []
    return [[second, *_medians([one[second] for one in rounds])] for second in seconds]


def _medians(rows: Sequence[Sequence[float]]) -> list[float]:
    """Column by column."""
    return [round(median(values), 1) for values in zip(*rows, strict=True)]
