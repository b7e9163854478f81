"""Figures of a rush, from when each buyer sent its request and had its answer. Pure functions."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil
from typing import Any

from loadtest.judge.intervals import Request, by_attempt


def figures(requests: Sequence[Request]) -> dict[str, Any]:
    """Those that a run has in summary.json, where judge/run.py says what they are. `buy_ms` is of
    each buyer's whole purchase, `requests` of each single request, with those that asked again."""
    answers = [
        (asked[0].sent / 1e9, [one.answered / 1e9 for one in asked if one.answered is not None])
        for asked in by_attempt(requests).values()
    ]
    first = [sent for sent, _ in answers]
    known = [(sent, answered) for sent, answered in answers if answered]
    began = min((sent for sent, _ in known), default=0.0)
    ended = max((answered[-1] for _, answered in known), default=0.0)
    took = [(one.answered - one.sent) / 1e6 for one in requests if one.answered is not None]
    return {
        "duration_s": round(ended - began, 3),
        "buy_ms": percentiles(((done[-1] - sent) * 1000 for sent, done in known), 50, 95, 99),
        "arrival_spread_ms": round((max(first) - min(first)) * 1000, 1) if first else 0.0,
        "began_s": began,
        "requests": percentiles(took, 50, 99),
        "in_flight": in_flight([(sent, answered[0]) for sent, answered in known]),
    }


def in_flight(intervals: Iterable[tuple[float, float]]) -> int:
    """The most requests that were sent and not yet answered at one instant."""
    steps = sorted(step for sent, answered in intervals for step in ((sent, 1), (answered, -1)))
    return max(accumulate(step for _, step in steps), default=0)


def percentiles(values: Iterable[float], *percents: int) -> dict[str, float]:
    """The percentiles p50, p99 and so on, and the largest: `max`. Each is the smallest value that
    at least so many percent of them do not exceed (nearest rank); without values 0."""
    ordered = sorted(values) or [0.0]
    ranks = {f"p{percent}": ceil(len(ordered) * percent / 100) for percent in percents}
    ranks["max"] = len(ordered)
    return {name: round(ordered[rank - 1], 1) for name, rank in ranks.items()}
