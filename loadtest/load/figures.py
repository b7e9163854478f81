"""Figures of a load run, from its purchases. Pure functions; times in monotonic seconds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from loadtest.judge.intervals import Request
from loadtest.judge.sale_record import FINAL
from loadtest.rush.measure import percentile


class Purchase(NamedTuple):
    """One purchase, with all its requests.

    product   its place among the plan's products
    intended  when it was to be sent: in the closed model, when it was sent
    """

    product: int
    client: int
    intended: float
    requests: Sequence[Request]

    @property
    def outcome(self) -> str:
        """Of the last answer."""
        return self.requests[-1].outcome

    @property
    def answered(self) -> float | None:
        last = self.requests[-1].answered
        return None if last is None else last / 1e9


@dataclass(frozen=True, slots=True)
class Measured:
    """What Locust measured in a run, from `begin` to `end`.

    cpu            processor seconds of each part in that time; None where they cannot be read
    locust_is_busy whether Locust computed for more than 90 % of the time
    turned_away    open model: arrivals above the cap
    shares         processes whose purchases are known
    """

    purchases: Sequence[Purchase]
    begin: float
    end: float
    cpu: Mapping[str, float | None] = field(default_factory=dict)
    locust_is_busy: bool = False
    turned_away: int = 0
    shares: int = 1


def measured(folder: Path) -> Measured:
    """What a run left in its folder."""
    files = [json.loads(path.read_text()) for path in folder.glob("purchases-*.json")]
    found = [
        Purchase(product, who, intended, [Request(*one) for one in requests])
        for file in files
        for product, who, intended, requests in file["purchases"]
    ]
    window = json.loads((folder / "window.json").read_text())
    turned_away = sum(file["turned_away"] for file in files)
    return Measured(found, **window, turned_away=turned_away, shares=len(files))


def jain(counts: Iterable[float]) -> float | None:
    """Jain's fairness index: 1 if all got as much, 1 / n if one of n got it all; None if nobody got
    anything.

    R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination", 1984.
    """
    values = list(counts)
    squares = sum(value * value for value in values)
    return round(sum(values) ** 2 / (len(values) * squares), 3) if squares else None


def figures(found: Measured, *, clients: int, units: int, is_open: bool) -> dict[str, Any]:
    """The figures of a run as `summary.json` has them.

    clients  of the closed model, for the fairness between them
    units    that there were; a sale that ran out is measured until its last unit

    measured_s       seconds that were measured, without the warm-up
    ended_by         `time` or `stock`
    sold, sold_per_s units sold in them, and a second
    answer_ms        of the buyers who arrived in them and were sold a unit or answered sold_out:
                     from when the request was to be sent to the last answer
    p99_to_p50       how unevenly buyers wait
    jain             of the units sold to each client; None in the open model
    errors           answers that were neither sold nor sold_out
    cpu_ms_per_sale  milliseconds of processor time a sold unit, by part; None: not known
    """
    times = sorted(p.answered for p in found.purchases if p.outcome == "sold" and p.answered)
    ran_out = bool(times) and len(times) >= units and times[-1] < found.end
    end = times[-1] if ran_out else found.end
    seconds = max(end - found.begin, 1e-9)
    within = [one for one in found.purchases if found.begin <= one.intended < end]
    waited = sorted(
        (one.answered - one.intended) * 1000
        for one in within
        if one.outcome in FINAL and one.answered
    )
    sold = sum(found.begin <= t <= end for t in times)
    of = Counter(
        one.client
        for one in found.purchases
        if one.outcome == "sold" and found.begin <= (one.answered or 0) <= end
    )
    answers = Counter(request.outcome for one in within for request in one.requests)
    p50, p99 = percentile(waited, 50), percentile(waited, 99)
    return {
        "measured_s": round(seconds, 3),
        "ended_by": "stock" if ran_out else "time",
        "sold": sold,
        "sold_per_s": round(sold / seconds, 1),
        "answer_ms": {"p50": p50, "p99": p99, "max": percentile(waited, 100)},
        "p99_to_p50": round(p99 / p50, 2) if p50 else None,
        "jain": None if is_open else jain(of[client] for client in range(clients)),
        "answers": dict(answers),
        "errors": sum(count for name, count in answers.items() if name not in FINAL),
        "cpu_ms_per_sale": {
            part: None if spent is None or not sold else round(spent * 1000 / sold, 2)
            for part, spent in found.cpu.items()
        },
        "locust_is_busy": found.locust_is_busy,
        "turned_away": found.turned_away,
    }
