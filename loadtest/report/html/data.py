"""The data of report.html: every run with its timeline, and how long buyers waited by strategy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadtest.judge.history import Event, requests
from loadtest.report.html.timeline import timeline
from loadtest.rush.measure import percentile

Run = Mapping[str, Any]

#: What a box of the latency chart shows.
PERCENTILES = (0, 25, 50, 75, 95, 100)


def report_data(summary: Mapping[str, Any], events: Sequence[Event]) -> dict[str, Any]:
    """The runs as the summary has them, each with a `timeline` (None: nothing was recorded), and
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


def _histories(runs: Sequence[Run], events: Sequence[Event]) -> Iterator[list[Event]]:
    """The events of each run. A rush says what its buyers' attempts begin with; a cell of the
    matrix of faults is the one of its fault and its strategy."""
    found = _by_run(events)
    cells = {tuple(name.split("/")[-2:]): name for name in found}
    made: dict[str, list[Event]] = {}
    for event in events:
        if event["by"] == "fault":
            made.setdefault(event["f"], []).append(event)
    for run in runs:
        name = run.get("attempts") or cells.get((run["fault"], run["lock"]), "")
        there = [*found.get(name, ()), *made.get(run["fault"], ())]
        yield sorted(there, key=lambda event: event["t"])


def _by_run(events: Sequence[Event]) -> dict[str, list[Event]]:
    """What belongs to each run, in the order given: by all of an attempt's id but the buyer, which
    is its last part. What faults did is in none."""
    found: dict[str, list[Event]] = {}
    for event in events:
        if "attempt" in event:
            found.setdefault(event["attempt"].rpartition("/")[0], []).append(event)
    return found


def _waited_ms(history: Sequence[Event]) -> list[float]:
    """How long each buyer waited for its last answer, from when it first asked; those that had
    none are left out."""
    sent: dict[str, int] = {}
    answered: dict[str, int] = {}
    for request in requests(history):
        sent.setdefault(request.attempt, request.sent)
        if request.answered is not None:
            answered[request.attempt] = request.answered
    return [(answered[attempt] - sent[attempt]) / 1e6 for attempt in answered]
