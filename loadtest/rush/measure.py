"""Figures of a rush, from when each buyer sent its request and had its answer. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from loadtest.judge.intervals import Request


@dataclass(frozen=True, slots=True)
class Interval:
    """From sending a purchase to its last answer, in monotonic seconds.

    answered  when the first answer came, for requests in flight
    """

    sent: float
    answered: float
    done: float


def intervals(requests: Sequence[Request]) -> list[Interval]:
    """That of each buyer who has an answer."""
    of: dict[str, list[Request]] = {}
    for request in requests:
        of.setdefault(request.attempt, []).append(request)
    found = []
    for asked in of.values():
        answered = [one.answered for one in asked if one.answered is not None]
        if answered:
            found.append(Interval(*(t / 1e9 for t in (asked[0].sent, answered[0], answered[-1]))))
    return found


def first_sent(requests: Sequence[Request]) -> list[float]:
    """When each buyer sent its first request, in monotonic seconds."""
    first: dict[str, int] = {}
    for request in requests:
        first.setdefault(request.attempt, request.sent)
    return [sent / 1e9 for sent in first.values()]


def spread_ms(sent: Sequence[float]) -> float:
    """Milliseconds from the first request sent to the last one."""
    return round((max(sent) - min(sent)) * 1000, 1) if sent else 0.0


def after(moment: float, sent: Sequence[float]) -> dict[str, float | None]:
    """Milliseconds: the spread, and how long after the moment the first and the last were sent."""
    first, last = (
        (round((t - moment) * 1000, 3) for t in (min(sent), max(sent))) if sent else (None, None)
    )
    return {"arrival_spread_ms": spread_ms(sent), "first_ms": first, "last_ms": last}


def in_flight(intervals: Sequence[Interval]) -> int:
    """The most requests that were sent and not yet answered at one instant."""
    steps = [(i.sent, 1) for i in intervals] + [(i.answered, -1) for i in intervals]
    most = now = 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return most


def duration_s(intervals: Sequence[Interval]) -> float:
    """Seconds from the first request sent to the last answer."""
    if not intervals:
        return 0.0
    return round(max(i.done for i in intervals) - min(i.sent for i in intervals), 3)


def latency_ms(intervals: Sequence[Interval]) -> dict[str, float]:
    """How long buyers waited for their last answer: median, 95th and 99th percentile, longest."""
    waited = sorted((i.done - i.sent) * 1000 for i in intervals)
    return {
        "p50": percentile(waited, 50),
        "p95": percentile(waited, 95),
        "p99": percentile(waited, 99),
        "max": percentile(waited, 100),
    }


def began_s(intervals: Sequence[Interval]) -> float:
    """When the first request was sent: seconds of the monotonic clock, 0 without any."""
    return min((interval.sent for interval in intervals), default=0.0)


def requests_ms(requests: Sequence[Request]) -> dict[str, float]:
    """Of every single request, a buyer's first and those that asked again: how many there were, how
    many of them were refused because too many waited, and how long their answers took."""
    took = sorted((r.answered - r.sent) / 1e6 for r in requests if r.answered is not None)
    return {
        "asked": len(requests),
        "full": sum(request.outcome == "full" for request in requests),
        "p50": percentile(took, 50),
        "p99": percentile(took, 99),
        "max": percentile(took, 100),
    }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of them do not exceed (nearest rank)."""
    if not ordered:
        return 0.0
    return round(ordered[max(0, ceil(len(ordered) * percent / 100) - 1)], 1)
