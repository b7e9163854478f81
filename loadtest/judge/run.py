"""The types of `results/<time>/summary.json`, which every command writes."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, Required, TypedDict


class Machine(TypedDict):
    """The machine on which it ran, and the servers."""

    cpus: int | None
    python: str
    postgres: str
    database: NotRequired[str]
    redis: str


class Judged(TypedDict, total=False):
    """The judge's part of a run: the verdict on one sale."""

    initial_stock: int  # units that were asked for
    orders: int
    stock_left: int | None  # None where the target shows no stock; then so is lost_updates
    oversold: int  # orders beyond the stock
    undersold: int  # units that answered buyers could have bought, and that no order took
    lost_updates: int | None  # decrements another write erased; below 0, units without an order
    outcomes: dict[str, int]  # how many buyers got each outcome as their last answer
    never_arrived: int  # buyers who were sent and never became ready to buy
    never_asked: int  # buyers who were ready and never asked
    never_answered: int  # buyers who asked and were neither sold a unit nor answered sold_out
    violations: list[str]  # names of the rules that the sale broke
    findings: list[str]  # the evidence, a sentence for each of them
    verdict: Required[str]  # exact, oversold, undersold, deadlock, unknown or not_run
    why: str  # one sentence: why it was not run, or why nothing can be concluded


def count_unanswered_buyers(run: Mapping[str, Any]) -> int:
    """Return how many buyers of a run were neither sold a unit nor answered `sold_out`."""
    names = ("never_arrived", "never_asked", "never_answered")
    return sum(int(run.get(name, 0)) for name in names)


class Expectation(TypedDict):
    """What was run, and whether it ended as loadtest/expected.py says."""

    lock: str
    fault: str  # `rush`, `rush-one-process`, `chaos` or the name of a fault
    expected: str  # the verdict
    as_expected: bool


class RushFigures(TypedDict, total=False):
    """How a rush was set up, and how long it took."""

    sale: int
    attempts: str  # the prefix of the Idempotency-Keys of a rush
    buyers: int
    hold_ms: int
    began_s: float  # when the first request was sent, by the monotonic clock of its machine
    duration_s: float  # from the first request to the last answer
    arrival_spread_ms: float  # from the first request to the last one
    buy_ms: Mapping[str, float]  # the buyers' waits for their last answer: p50, p95, p99, max
    requests: Mapping[str, float]  # every request, retries too: p50, p99, max, in ms
    in_flight: int  # the most requests that waited for an answer at one moment
    grown: Mapping[str, Any]  # the resources that a rush of `growth` took: tools/growth.py
    lost: list[str]  # Locust's processes that were lost in the rush, with unanswered buyers
    round: int  # of load, chaos and targets, which repeat their rushes


class TargetFacts(TypedDict, total=False):
    """What is known of a shop of one's own."""

    target: str  # its file; `lock` is the shop's name then
    judged: list[str]  # the facts on which the verdict is based
    not_judged: list[str]  # the facts that the verdict does not consider


class Run(Expectation, Judged, RushFigures, TargetFacts):
    """One strategy in one rush or under one fault. A run that was not made has no figures."""


class Cell(Run, total=False):
    """One strategy under one fault: a run, and the course of the fault."""

    evidence: Required[str]  # how it was seen that the fault happened
    missing: Required[str]  # why the cell is inconclusive, or empty
    wrong: Required[list[str]]  # complaints besides the verdict
    recovery_s: Required[float | None]  # until the next sale; None: none, or it was not measured
    story: Required[list[str]]  # the timeline of a cell that is not exact, in lines of text


class Summary(TypedDict, total=False):
    """The whole `summary.json`. Each field after `runs` belongs to one command."""

    started: Required[str]  # ISO 8601 with the time zone
    machine: Required[Machine]
    nodes: Required[int]
    workers: Required[int]
    threads: Required[int]  # of each worker
    server: str  # what served the nodes: gthread or asgi
    runs: Required[Sequence[Run]]
    seed: int  # of chaos
    minutes: float  # of chaos
    rushes: Sequence[Mapping[str, Any]]  # of chaos: the disturbances, seed and duration of each
    canaries: Mapping[str, int]  # of chaos: lock that must break -> the first rush in which it did
    rounds: int  # of load
    # of target: its `file` and `host`, `judged` and `not_judged`; `nodes`, `workers` and `threads`
    # are 0 there
    target: Mapping[str, Any]
    load: Mapping[str, Any]  # of load: its options (load/plan.py: LoadOptions)
    medians: Mapping[str, Mapping[str, Any]]  # of load: the figures of its table, by strategy
