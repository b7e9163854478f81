"""Figures of a load run, from its purchases. Pure functions; times in monotonic seconds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loadtest.judge.sale_record import FINAL, OUTCOMES
from loadtest.rush.measure import percentile

#: The key of the processor time of all programs, beside those of the parts.
MACHINE = "machine"
#: The percentiles of the report's boxes: the same as those of a rush.
BOX = (0, 25, 50, 75, 95, 100)


class Sale(NamedTuple):
    """One purchase, with its last answer.

    product   its place among the plan's products
    number    of the purchase among those of its client
    intended  when it was to be sent: in the closed model, when it was sent
    outcome   of the last answer
    earlier   the outcomes of the answers before it, after which the buyer asked again
    replayed  whether the last answer says that the order is an earlier one
    """

    product: int
    client: int
    number: int
    intended: float
    sent: float
    answered: float
    outcome: str
    order: int | None
    earlier: Sequence[str] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """What was measured, from `begin` to `end`; `by`: what ended it, `time` or `stock`."""

    begin: float
    end: float
    by: str = "time"

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def has(self, when: float) -> bool:
        return self.begin <= when < self.end


@dataclass(frozen=True, slots=True)
class Measured:
    """What Locust measured in a run.

    cpu      processor seconds of each part in the window; None where they cannot be read
    busy     the share of the window in which Locust's busiest process was computing; None: unknown
    why      why the measurement failed; empty if it did not
    """

    sales: Sequence[Sale]
    window: Window
    cpu: Mapping[str, float | None] = field(default_factory=dict)
    busy: float | None = None
    most_in_flight: int = 0
    turned_away: int = 0
    why: str = ""


def measured(found: Mapping[str, Any]) -> Measured:
    """What is in a result file."""
    return Measured(
        **{
            **found,
            "sales": [Sale(*one) for one in found["sales"]],
            "window": Window(**found["window"]),
        }
    )


def jain(counts: Iterable[float]) -> float | None:
    """Jain's fairness index: 1 if all got as much, 1 / n if one of n got it all; None if nobody got
    anything.

    R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination", 1984.
    """
    values = list(counts)
    squares = sum(value * value for value in values)
    return round(sum(values) ** 2 / (len(values) * squares), 3) if squares else None


def milliseconds(sales: Iterable[Sale]) -> list[float]:
    """The time to answer of each, sorted: from when it was to be sent to its last answer."""
    return sorted((one.answered - one.intended) * 1000 for one in sales)


def figures(found: Measured, *, clients: int, is_open: bool) -> dict[str, Any]:
    """The figures of a run as `summary.json` has them (load_run.py: LoadRun).

    clients  of the closed model, for the fairness between them
    """
    window = found.window
    within = [one for one in found.sales if window.has(one.intended)]
    waited = milliseconds(one for one in within if one.outcome in FINAL)
    sold = [one for one in found.sales if one.outcome == "sold" and _is_in(window, one.answered)]
    p50, p99 = percentile(waited, 50), percentile(waited, 99)
    per_client = Counter(one.client for one in sold)
    late = sorted((one.sent - one.intended) * 1000 for one in within)
    answers = Counter(dict.fromkeys(OUTCOMES, 0))
    for one in within:
        answers.update([*one.earlier, one.outcome])
    return {
        "measured_s": round(window.seconds, 3),
        "ended_by": window.by,
        "sold": len(sold),
        "sold_per_s": round(len(sold) / window.seconds, 1) if window.seconds > 0 else 0.0,
        "answer_ms": {
            **{f"p{percent}": percentile(waited, percent) for percent in (50, 90, 99)},
            "max": percentile(waited, 100),
        },
        "box_ms": [percentile(waited, percent) for percent in BOX],
        "p99_to_p50": round(p99 / p50, 2) if p50 else None,
        "jain": None if is_open else jain(per_client[client] for client in range(clients)),
        "late_ms": percentile(late, 99),
        "answers": dict(answers),
        "errors": sum(count for name, count in answers.items() if name not in FINAL),
        "cpu_ms_per_sale": _per_sale(found.cpu, len(sold)),
        "locust_busy": None if found.busy is None else round(found.busy, 2),
        "others_busy": others_busy(found),
        "most_in_flight": found.most_in_flight,
        "turned_away": found.turned_away,
        "by_second": by_second(found.sales, window),
    }


def by_second(sales: Sequence[Sale], window: Window) -> list[list[float]]:
    """For each second of the window: its number, the units sold in it, and the p50 and p99 of the
    time to answer (ms) of the buyers who arrived in it. A second without arrivals is left out."""
    arrived: dict[int, list[Sale]] = {}
    sold: Counter[int] = Counter()
    for one in sales:
        if window.has(one.intended) and one.outcome in FINAL:
            arrived.setdefault(int(one.intended - window.begin), []).append(one)
        if one.outcome == "sold" and _is_in(window, one.answered):
            sold[int(one.answered - window.begin)] += 1
    return [
        [second, sold[second], percentile(waited, 50), percentile(waited, 99)]
        for second, waited in ((s, milliseconds(arrived[s])) for s in sorted(arrived))
    ]


def _is_in(window: Window, when: float) -> bool:
    """Whether an answer came in the window; the last unit of a sale that ran out ends it."""
    return window.begin <= when <= window.end


def _per_sale(cpu: Mapping[str, float | None], sold: int) -> dict[str, float | None]:
    return {
        part: None if seconds is None or not sold else round(seconds * 1000 / sold, 2)
        for part, seconds in cpu.items()
        if part != MACHINE
    }


def others_busy(found: Measured) -> float | None:
    """The share of this machine's processor time that other programs took in the window."""
    spent = [found.cpu.get(MACHINE), *(s for part, s in found.cpu.items() if part != MACHINE)]
    known = [one for one in spent if one is not None]
    if len(known) < len(spent) or found.window.seconds <= 0:
        return None
    machine, *parts = known
    whole = found.window.seconds * (os.cpu_count() or 1)
    return round(min(1.0, max(0.0, machine - sum(parts)) / whole), 2)
