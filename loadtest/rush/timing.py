"""Durations, percentiles and concurrency of the requests of a rush."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil
from typing import Any

from loadtest.judge.intervals import Request, group_by


def measure_timing(requests: Sequence[Request]) -> dict[str, Any]:
    """Return the fields of summary.json for the durations and the concurrency of a run.

    RushFigures in judge/run.py describes these fields. A purchase is a buyer's first request and
    its retries, which have the same `attempt`.
    """
    purchases = group_by(requests, lambda request: request.attempt).values()
    first_sent_s = []
    timed_purchases = []  # (time of the first request, times of the answers), if there is an answer
    for purchase in purchases:
        sent_s = purchase[0].sent_at / 1e9
        first_sent_s.append(sent_s)
        if answer_times := _list_answer_times(purchase):
            timed_purchases.append((sent_s, answer_times))
    began_s = min((sent for sent, _ in timed_purchases), default=0.0)
    ended_s = max((times[-1] for _, times in timed_purchases), default=0.0)
    purchase_ms = [(times[-1] - sent) * 1000 for sent, times in timed_purchases]
    request_ms = [
        (request.answered_at - request.sent_at) / 1e6
        for request in requests
        if request.answered_at is not None
    ]
    spread_s = max(first_sent_s, default=0.0) - min(first_sent_s, default=0.0)
    return {
        "duration_s": round(ended_s - began_s, 3),
        "buy_ms": compute_percentiles(purchase_ms, 50, 95, 99),
        "arrival_spread_ms": round(spread_s * 1000, 1),
        "began_s": began_s,
        "requests": compute_percentiles(request_ms, 50, 99),
        # A purchase counts as in flight only until its first answer. Retries are not counted.
        "in_flight": compute_max_in_flight([(sent, times[0]) for sent, times in timed_purchases]),
    }


def compute_max_in_flight(intervals: Iterable[tuple[float, float]]) -> int:
    """Return the largest number of these intervals that overlap at one time.

    intervals  the beginning and the end of each interval. An interval that begins when another one
               ends does not overlap it
    """
    changes: list[tuple[float, int]] = []
    for begin, end in intervals:
        changes += [(begin, 1), (end, -1)]
    changes.sort()  # at equal times, an end (-1) comes before a beginning (1)
    return max(accumulate(change for _, change in changes), default=0)


def compute_percentiles(values: Iterable[float], *percents: int) -> dict[str, float]:
    """Return the percentiles as p50, p99 and so on, and the largest value as `max`.

    They are computed by the nearest-rank method: at least 95 % of the values are less than or equal
    to p95, and p95 is the smallest such value. Without values, all percentiles are 0.
    """
    sorted_values = sorted(values) or [0.0]
    ranks = {f"p{percent}": ceil(len(sorted_values) * percent / 100) for percent in percents}
    ranks["max"] = len(sorted_values)
    return {name: round(sorted_values[rank - 1], 1) for name, rank in ranks.items()}


def _list_answer_times(purchase: Sequence[Request]) -> list[float]:
    """Return the times at which the requests of a purchase were answered, in seconds."""
    return [request.answered_at / 1e9 for request in purchase if request.answered_at is not None]
