"""Figures of a load run, from what its buyers asked. Pure functions; times in monotonic seconds."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from loadtest.judge.history import Event
from loadtest.judge.intervals import ProductHistory, Request
from loadtest.judge.sale_record import FINAL
from loadtest.load.plan import Plan
from loadtest.rush.measure import percentiles


@dataclass(frozen=True)
class Measured:
    """What Locust recorded and measured in a run, from `begin` to `end`.

    events       of each product's buyers
    cpu          processor seconds of each part in that time; None where they cannot be read
    is_busy      whether Locust computed for more than 90 % of the time
    turned_away  open model: arrivals above the cap
    shares       processes whose buyers are known
    """

    events: Mapping[str, Sequence[Event]]
    begin: float
    end: float
    cpu: Mapping[str, float | None] = field(default_factory=dict)
    is_busy: bool = False
    turned_away: int = 0
    shares: int = 1

    @cached_property
    def purchases(self) -> list[list[Request]]:
        """The requests of each purchase; the first was sent when it was to be sent."""
        histories = map(ProductHistory, self.events.values())
        return [asked for history in histories for asked in history.requests_of.values()]


def measured(folder: Path) -> Measured:
    """What a run left in its folder."""
    files = [json.loads(path.read_text()) for path in folder.glob("buyers-*.json")]
    events: dict[str, list[Event]] = {}
    for file in files:
        for product, found in file["events"].items():
            events.setdefault(product, []).extend(found)
    return Measured(
        {product: sorted(found, key=lambda one: one["t"]) for product, found in events.items()},
        turned_away=sum(file["turned_away"] for file in files),
        shares=len(files),
        **json.loads((folder / "window.json").read_text()),
    )


def jain(counts: Iterable[float]) -> float | None:
    """Jain's fairness index: 1 if all got as much, 1 / n if one of n got it all; None if nobody got
    anything.

    R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination", 1984.
    """
    values = list(counts)
    squares = sum(value * value for value in values)
    return round(sum(values) ** 2 / (len(values) * squares), 3) if squares else None


def figures(found: Measured, plan: Plan) -> dict[str, Any]:
    """The figures of a run as `summary.json` has them. A sale that ran out is measured until its
    last unit.

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
    bought = sorted((one[-1].answered or 0, one[-1].attempt) for one in found.purchases
                    if one[-1].outcome == "sold")  # fmt: skip
    begin, end = found.begin * 1e9, found.end * 1e9
    ran_out = 0 < plan.stock * plan.products <= len(bought) and bought[-1][0] < end
    end = bought[-1][0] if ran_out else end
    seconds = max((end - begin) / 1e9, 1e-9)
    arrived = [one for one in found.purchases if begin <= one[0].sent < end]
    waited = [
        (one[-1].answered - one[0].sent) / 1e6
        for one in arrived
        if one[-1].outcome in FINAL and one[-1].answered
    ]
    sold = [attempt for answered, attempt in bought if begin <= answered <= end]
    units = Counter(attempt.rpartition("-")[0] for attempt in sold)  # by client
    answers = Counter(request.outcome for one in arrived for request in one)
    answer_ms = percentiles(waited, 50, 99)
    return {
        "measured_s": round(seconds, 3),
        "ended_by": "stock" if ran_out else "time",
        "sold": len(sold),
        "sold_per_s": round(len(sold) / seconds, 1),
        "answer_ms": answer_ms,
        "p99_to_p50": round(answer_ms["p99"] / answer_ms["p50"], 2) if answer_ms["p50"] else None,
        "jain": None
        if plan.arrivals_per_second
        else jain(units[f"{plan.id}/c{number}"] for number in range(plan.clients)),
        "answers": dict(answers),
        "errors": sum(count for name, count in answers.items() if name not in FINAL),
        "cpu_ms_per_sale": {
            part: None if spent is None or not sold else round(spent * 1000 / len(sold), 2)
            for part, spent in found.cpu.items()
        },
        "locust_is_busy": found.is_busy,
        "turned_away": found.turned_away,
    }
