"""The figures of a load run: throughput, time to answer, fairness, processor time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loadtest.judge.intervals import Request
from loadtest.judge.outcomes import FINAL_OUTCOMES
from loadtest.load.measurement import Measurement
from loadtest.load.plan import LoadPlan
from loadtest.rush.timing import compute_percentiles

#: The minimum length of the window: the sales are divided by it, so it must not be 0.
MIN_WINDOW_SECONDS = 1e-9


@dataclass(frozen=True)
class MeasuredWindow:
    """The time in which a run is measured, and the run's purchases.

    A purchase is the list of a buyer's requests for one unit: the first one, and its retries. The
    window ends early if the last unit is sold. Times are monotonic nanoseconds.
    """

    plan: LoadPlan
    measurement: Measurement

    @cached_property
    def sold_times_and_attempts(self) -> list[tuple[int, str]]:
        """For every purchase that got a unit, the time of its answer and its id (the attempt).

        They are sorted by time. Purchases before and after the window are included.
        """
        return sorted(
            (purchase[-1].answered_at or 0, purchase[-1].attempt)
            for purchase in self.measurement.purchases
            if purchase[-1].outcome == "sold"
        )

    @cached_property
    def is_sold_out(self) -> bool:
        """True if the last unit was sold before the measurement ended."""
        units = self.plan.stock * self.plan.products
        if not 0 < units <= len(self.sold_times_and_attempts):
            return False
        last_sold_at, _ = self.sold_times_and_attempts[-1]
        return last_sold_at < self.measurement.end * 1e9

    @property
    def begin(self) -> float:
        """The begin of the measurement, in nanoseconds."""
        return self.measurement.begin * 1e9

    @property
    def end(self) -> float:
        """The end of the measurement, or the sale of the last unit if that was earlier."""
        if self.is_sold_out:
            return float(self.sold_times_and_attempts[-1][0])
        return self.measurement.end * 1e9

    @property
    def seconds(self) -> float:
        """The length of the window, which is never 0, because other figures are divided by it."""
        return max((self.end - self.begin) / 1e9, MIN_WINDOW_SECONDS)

    @cached_property
    def due_purchases(self) -> list[list[Request]]:
        """The purchases that were due in the window, even if they began after it.

        A purchase is due when its buyer wants to buy, even if Locust is too busy to send the
        request at that time. The due time is the `sent_at` of the first request.
        """
        return [
            purchase
            for purchase in self.measurement.purchases
            if self.begin <= purchase[0].sent_at < self.end
        ]

    @cached_property
    def sold_attempts(self) -> list[str]:
        """The ids of the purchases (attempts) that were answered `sold` in the window."""
        return [
            attempt
            for answered_at, attempt in self.sold_times_and_attempts
            if self.begin <= answered_at <= self.end
        ]


def compute_figures(measurement: Measurement, plan: LoadPlan) -> dict[str, Any]:
    """Return the figures of a run, as in `summary.json`.

    measured_s       seconds of the measured window, without the warm-up
    ended_by         `time` or `stock`
    sold, sold_per_s units sold in the window, and per second of it
    answer_ms        percentiles of the buyers' waits. A wait begins when a purchase is due, and
                     ends with its last answer. Only purchases that were due in the window count,
                     and only if their last answer was sold or sold_out
    p99_to_p50       p99 divided by p50: the higher, the more unevenly buyers wait
    jain             fairness of the units sold to each client; None in the open model
    answers          number of answers by outcome, to the purchases that were due in the window
    errors           how many of these answers were neither sold nor sold_out
    cpu_ms_per_sale  milliseconds of processor time per sold unit, by part of the system (nodes,
                     PostgreSQL, Valkey, Locust); None if unknown

    locust_is_busy and turned_away are copied from the measurement.
    """
    window = MeasuredWindow(plan, measurement)
    sold = len(window.sold_attempts)
    answers: Counter[str] = Counter()
    for purchase in window.due_purchases:
        answers.update(request.outcome for request in purchase)
    answer_ms = compute_percentiles(_compute_waits_in_ms(window.due_purchases), 50, 99)
    return {
        "measured_s": round(window.seconds, 3),
        "ended_by": "stock" if window.is_sold_out else "time",
        "sold": sold,
        "sold_per_s": round(sold / window.seconds, 1),
        "answer_ms": answer_ms,
        "p99_to_p50": _compute_ratio(answer_ms["p99"], answer_ms["p50"]),
        "jain": _compute_fairness(window),
        "answers": dict(answers),
        "errors": sum(count for outcome, count in answers.items() if outcome not in FINAL_OUTCOMES),
        "cpu_ms_per_sale": {
            part: None if seconds is None else _compute_ratio(seconds * 1000, sold)
            for part, seconds in measurement.cpu.items()
        },
        "locust_is_busy": measurement.locust_is_busy,
        "turned_away": measurement.turned_away,
    }


def compute_jain_index(counts: Iterable[float]) -> float | None:
    """Return Jain's fairness index: 1 if all counts are equal, 1 / n if all but one of n are 0.

    None if all counts are 0.

    R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination", 1984.
    """
    counts = list(counts)
    sum_of_squares = sum(count * count for count in counts)
    if not sum_of_squares:
        return None
    return round(sum(counts) ** 2 / (len(counts) * sum_of_squares), 3)


def _compute_waits_in_ms(purchases: Sequence[Sequence[Request]]) -> list[float]:
    """Return the milliseconds from each purchase's due time to its final answer.

    The due time, at which the buyer wants to buy, is the `sent_at` of the first request.
    Purchases without a final answer are left out.
    """
    return [
        (purchase[-1].answered_at - purchase[0].sent_at) / 1e6
        for purchase in purchases
        if purchase[-1].outcome in FINAL_OUTCOMES and purchase[-1].answered_at
    ]


def _compute_ratio(numerator: float, denominator: float) -> float | None:
    """Return the ratio, rounded to the hundredth; None if the denominator is 0."""
    if not denominator:
        return None
    return round(numerator / denominator, 2)


def _compute_fairness(window: MeasuredWindow) -> float | None:
    """Return Jain's index of the units sold to each client; None in the open model."""
    plan = window.plan
    if plan.arrivals_per_second:
        return None
    # An attempt is `<plan id>/c<number of the client>-<number of its purchase>`.
    units_by_client = Counter(attempt.rpartition("-")[0] for attempt in window.sold_attempts)
    return compute_jain_index(
        units_by_client[f"{plan.id}/c{number}"] for number in range(plan.clients)
    )
