"""The types of `results/<time>/summary.json`, which every command writes."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, Required, TypedDict


class Machine(TypedDict):
    """The machine of the run, and the versions of its servers."""

    cpus: int | None
    python: str
    postgres: str  # its version; empty if the shop uses another database
    database: NotRequired[str]  # name and version of that other database; empty with PostgreSQL
    redis: str  # name and version of the server with the locks


class Judged(TypedDict, total=False):
    """The judge's part of a run: the verdict on one sale."""

    initial_stock: int  # units that the run put up for sale
    orders: int
    stock_left: int | None  # None if the target does not show its stock; then lost_updates is None
    oversold: int  # units sold beyond the stock, missing acknowledged orders included
    undersold: int  # units that were not sold, although there were buyers for them
    #: Decrements that another write erased. Below 0: units that were decremented without an order.
    lost_updates: int | None
    outcomes: dict[str, int]  # how many buyers got each outcome as their last answer
    never_arrived: int  # buyers of the run who never became ready to buy
    never_asked: int  # buyers who were ready to buy and sent no request
    #: Buyers who sent a request, and whose last answer was neither sold nor sold_out. Buyers who
    #: send one request only (buyers_without_retry in sale_record.py) do not count.
    never_answered: int
    violations: list[str]  # names of the rules that the sale broke
    findings: list[str]  # the evidence of the violations, one sentence per finding
    verdict: Required[str]  # exact, oversold, undersold, deadlock, unknown or not_run
    why: str  # one sentence: why the strategy was not run, or why the verdict is unknown


def count_unanswered_buyers(run: Mapping[str, Any]) -> int:
    """Return the number of buyers of a run who were answered neither `sold` nor `sold_out`."""
    fields = ("never_arrived", "never_asked", "never_answered")
    return sum(int(run.get(field, 0)) for field in fields)


class Expectation(TypedDict):
    """The subject of a run, and whether its verdict is the one in loadtest/expected.py."""

    lock: str
    fault: str  # `rush`, `rush-one-process`, `chaos` or the name of a fault
    expected: str  # the verdict
    as_expected: bool


class RushFigures(TypedDict, total=False):
    """The setup of a rush, and the times that were measured."""

    sale: int
    attempts: str  # the prefix of the Idempotency-Keys of a rush
    buyers: int
    hold_ms: int
    #: When the first request of the first purchase was sent, by the monotonic clock of the machine
    #: that opened the sale. Purchases without an answer count neither here nor in duration_s.
    began_s: float
    duration_s: float  # from began_s to the last answer
    arrival_spread_ms: float  # from the first buyer's first request to the last buyer's first one
    #: p50, p95, p99 and max of the time from a buyer's first request to its last answer.
    buy_ms: Mapping[str, float]
    requests: Mapping[str, float]  # p50, p99 and max of each request's duration in ms, retries too
    #: The highest number of buyers who waited for their first answer at the same time. Buyers
    #: without an answer do not count, nor do retries.
    in_flight: int
    grown: Mapping[str, Any]  # memory, CPU and threads of the rush; only of tools/growth.py
    lost: list[str]  # Locust's processes that ended in the rush before their buyers were answered
    round: int  # number of the repetition; only of load, chaos and targets


class TargetFacts(TypedDict, total=False):
    """Further fields of a run against a target, another shop than this project's."""

    target: str  # the target's file; `lock` is the name of the shop then
    judged: list[str]  # the facts on which the verdict is based
    not_judged: list[str]  # the facts that the verdict does not consider


class Run(Expectation, Judged, RushFigures, TargetFacts):
    """One strategy in one rush or under one fault. A strategy that was not run has no figures."""


class Cell(Run, total=False):
    """One strategy under one fault: a run, and the course of the fault."""

    evidence: Required[str]  # the observations that show that the fault happened
    missing: Required[str]  # why the cell is inconclusive; empty if it is conclusive
    wrong: Required[list[str]]  # problems in addition to an unexpected verdict
    recovery_s: Required[float | None]  # time to the next sale; None without one, or not measured
    story: Required[list[str]]  # the timeline of a cell that is not exact, in lines of text


class Summary(TypedDict, total=False):
    """The whole `summary.json`. A field after `runs` is written by one command only."""

    started: Required[str]  # ISO 8601 with the time zone
    machine: Required[Machine]
    nodes: Required[int]
    workers: Required[int]
    threads: Required[int]  # of each worker
    server: str  # how the nodes' gunicorn serves the shop: gthread or asgi; absent without nodes
    runs: Required[Sequence[Run]]
    seed: int  # of chaos
    minutes: float  # of chaos
    rushes: Sequence[Mapping[str, Any]]  # of chaos: the disturbances, seed and duration of each
    #: Of chaos: name of a canary -> the number of the first rush in which it broke. A canary is a
    #: flawed strategy that must break in the run; otherwise the run proves nothing.
    canaries: Mapping[str, int]
    rounds: int  # of load
    # of target: the `file` and `host` of the shop, `judged` and `not_judged`. In such a summary
    # `nodes`, `workers` and `threads` are 0.
    target: Mapping[str, Any]
    load: Mapping[str, Any]  # of load: its options (load/plan.py: LoadOptions)
    medians: Mapping[str, Mapping[str, Any]]  # of load: the figures of its table, by strategy
