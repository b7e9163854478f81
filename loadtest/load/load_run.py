"""The type of a run of `load` in `summary.json`."""

from __future__ import annotations

from typing import Any

from loadtest.judge.run import Run


class LoadRun(Run, total=False):
    """One strategy under sustained load, in one round of `python -m loadtest load`.

    `fault` is `rush` (or `rush-one-process`), whose verdict is expected. `orders`, `stock_left`,
    `oversold`, `lost_updates` and `outcomes` are sums over all products, with all that was sold
    before and after the measurement.

    clients            of the closed model; None in the open one
    arrivals_per_second  of the open model; None in the closed one
    measured_s         seconds that were measured: without the warm-up, and where the stock ran out
                       until its last unit
    ended_by           `time` or `stock`
    sold               units sold in the measured seconds
    sold_per_s         the same, a second
    answer_ms          p50, p90, p99 and max of the time to answer of the buyers who arrived in the
                       measured seconds and were sold a unit or answered sold_out: from when the
                       request was to be sent (closed: from when it was) to the last answer
    box_ms             the same at the percentiles 0, 25, 50, 75, 95, 100
    p99_to_p50         how unevenly buyers wait: p99 divided by p50
    jain               Jain's fairness index of the units sold to each client: 1 if all got as many,
                       1 / n if one of n got all; None in the open model, whose buyers come once
    late_ms            p99 of how late Locust itself sent; it is part of the time to answer
    answers            how many answers of each outcome, repeated requests included
    errors             answers that were neither sold nor sold_out
    cpu_ms_per_sale    milliseconds of processor time a sold unit, by part; None: not known
    locust_busy        share of the measured time in which the busiest process of Locust computed
    others_busy        share of the machine's processor time that other programs took; None: unknown
    most_in_flight     closed: clients; open: the most buyers who waited for an answer at a time
    turned_away        open: arrivals above the cap, which spoil the measurement
    settlement_lag_ms  of strategies that settle later: what the sales' reports say, the largest
    by_second          [second, units sold, p50, p99] for each second
    products           one entry a product: its stock (`asked`), `orders`, `left` and verdict
    """

    clients: int | None
    arrivals_per_second: float | None
    measured_s: float
    ended_by: str
    sold: int
    sold_per_s: float
    answer_ms: dict[str, float]
    box_ms: list[float]
    p99_to_p50: float | None
    jain: float | None
    late_ms: float
    answers: dict[str, int]
    errors: int
    cpu_ms_per_sale: dict[str, float | None]
    locust_busy: float | None
    others_busy: float | None
    most_in_flight: int
    turned_away: int
    settlement_lag_ms: Any
    by_second: list[list[float]]
    products: list[dict[str, Any]]
