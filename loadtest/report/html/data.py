"""The data of report.html: every run with its timeline, and how long buyers waited per strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from loadtest.judge.history import Event
from loadtest.judge.intervals import ProductHistory
from loadtest.judge.run import Run, Summary
from loadtest.report.html.timeline import timeline
from loadtest.rush.measure import percentile

#: What a box of the latency chart shows.
PERCENTILES = (0, 25, 50, 75, 95, 100)


def report_data(summary: Summary, events: Sequence[Event]) -> dict[str, Any]:
    """The runs of the summary, each with its `timeline` (None if nothing was recorded), and
    `latency`: [strategy, buyers, milliseconds at each of PERCENTILES], in the order of the runs."""
    runs = list(summary["runs"])
    histories = list(_histories(runs, events))
    waited: dict[str, list[float]] = {}
    for run, history in zip(runs, histories, strict=True):
        waited.setdefault(run["lock"], []).extend(_waited_ms(history))
    return {
        "runs": [
            {**run, "timeline": timeline(history, run)}
            for run, history in zip(runs, histories, strict=True)
        ],
        "latency": [
            [lock, len(times), [percentile(sorted(times), p) for p in PERCENTILES]]
            for lock, times in waited.items()
            if times
        ],
    }


def _histories(runs: Sequence[Run], events: Sequence[Event]) -> Iterator[ProductHistory]:
    """The history of each run. The attempts of a rush begin with the run's `attempts`; those of a
    cell name its fault and its strategy."""
    found = _by_run(events)
    cells = {tuple(name.split("/")[-2:]): name for name in found}
    made: dict[str, list[Event]] = {}
    for event in events:
        if event["by"] == "fault":
            made.setdefault(event["f"], []).append(event)
    for run in runs:
        name = run.get("attempts") or cells.get((run["fault"], run["lock"]), "")
        there = [*found.get(name, ()), *made.get(run["fault"], ())]
        yield ProductHistory(sorted(there, key=lambda event: event["t"]))


def _by_run(events: Sequence[Event]) -> dict[str, list[Event]]:
    """The events of each run, in the order given, by the attempts' ids without their last part, the
    buyer. Events of faults are left out."""
    found: dict[str, list[Event]] = {}
    for event in events:
        if "attempt" in event:
            found.setdefault(event["attempt"].rpartition("/")[0], []).append(event)
    return found


def _waited_ms(history: ProductHistory) -> list[float]:
    """How long each buyer waited, from its first request to its last answer. Buyers without an
    answer are left out."""
    sent: dict[str, int] = {}
    answered: dict[str, int] = {}
    for request in history.requests:
        sent.setdefault(request.attempt, request.sent)
        if request.answered is not None:
            answered[request.attempt] = request.answered
    return [(answered[attempt] - sent[attempt]) / 1e6 for attempt in answered]
