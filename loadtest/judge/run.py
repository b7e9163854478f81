"""The types of `results/<time>/summary.json`: every command writes it, other programs read it."""

from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict


class Machine(TypedDict):
    """Where it ran."""

    cpus: int | None
    python: str
    postgres: str
    redis: str


class Judged(TypedDict, total=False):
    """What the judge found of one sale.

    oversold      orders beyond the stock
    undersold     units that answered buyers could have bought and nobody did
    lost_updates  decrements that another write erased; below 0, units that left without an order
    initial_stock   units that were asked for
    outcomes        how many buyers got each outcome as their last answer
    never_arrived   buyers who were sent and never became ready to buy
    never_asked     buyers who were ready and never asked
    never_answered  buyers who asked and were neither sold a unit nor answered sold_out
    violations      names of the rules that the sale broke
    findings        what was found, a sentence for each of them
    verdict         exact, oversold, undersold, deadlock, unknown or not_run
    stock_left      None where the target shows no stock; then so is lost_updates
    why             one sentence: why it was not run, or why nothing is concluded
    """

    initial_stock: int
    orders: int
    stock_left: int | None
    oversold: int
    undersold: int
    lost_updates: int | None
    outcomes: dict[str, int]
    never_arrived: int
    never_asked: int
    never_answered: int
    violations: list[str]
    findings: list[str]
    verdict: Required[str]
    why: str


def no_answer(run: Mapping[str, Any]) -> int:
    """How many buyers of a run were neither sold a unit nor answered that none is left."""
    names = ("never_arrived", "never_asked", "never_answered")
    return sum(int(run.get(name, 0)) for name in names)


class Rushed(TypedDict):
    """A shop of your own, in the rush of `python -m loadtest target`.

    file        the name of the file that says how it is bought from
    host        its address
    judged      what the verdict is based on, in sentences
    not_judged  what it says nothing of
    """

    file: str
    host: str
    judged: list[str]
    not_judged: list[str]


class Run(Judged, total=False):
    """One strategy in one rush or under one fault. One that was not run has no figures.

    fault              `rush`, `rush-one-process`, `chaos` or the name of a fault
    attempts           what the Idempotency-Keys of a rush begin with
    expected           the verdict that loadtest/expected.py has
    duration_s         from the first request to the last answer
    buy_ms             how long buyers waited for their last answer: p50, p95, p99, max, in ms
    arrival_spread_ms  from the first request to the last one
    in_flight          the most requests that waited for an answer at one moment
    began_s            when the first request was sent, by the monotonic clock of its machine
    requests           of every single request, those that asked again too: p50, p99, max, in ms
    grown              what a rush of `growth` took besides its seconds: see tools/growth.py
    target             the file of a shop of your own; `lock` is the shop's name then
    judged             of a rush: what the verdict is based on
    not_judged         of a rush: what it says nothing of
    lost               which of Locust's processes were lost in the rush, with unanswered buyers
    round              of load, of chaos and of targets, which repeat their rushes
    """

    lock: Required[str]
    fault: Required[str]
    expected: Required[str]
    as_expected: Required[bool]
    sale: int
    attempts: str
    buyers: int
    hold_ms: int
    target: str
    judged: list[str]
    not_judged: list[str]
    duration_s: float
    buy_ms: Mapping[str, float]
    arrival_spread_ms: float
    in_flight: int
    began_s: float
    requests: Mapping[str, float]
    grown: Mapping[str, Any]
    lost: list[str]
    round: int


class Cell(Run, total=False):
    """One strategy under one fault: a run, and how the fault went.

    evidence    by what it was seen that the fault happened
    missing     why the cell shows nothing, or empty
    wrong       what was not as it must be, beside the verdict
    recovery_s  seconds from the fault to the next sale, None if there was none or nobody asks
    story       of a cell that is not exact, its timeline in lines of text
    """

    evidence: Required[str]
    missing: Required[str]
    wrong: Required[list[str]]
    recovery_s: Required[float | None]
    story: Required[list[str]]


class Summary(TypedDict, total=False):
    """All of `summary.json`. The fields after `runs` are of one command each.

    started   ISO 8601 with the time zone
    threads   of each worker
    server    what served the nodes: gthread or asgi
    seed      of chaos
    minutes   of chaos
    rushes    of chaos: which disturbances each had, with its seed and duration
    canaries  of chaos: locks that must break, and the first rush in which each did
    rounds    of load
    target    of target: whose shop it was; `nodes`, `workers` and `threads` are 0 there
    load      of load: what was asked for (load/plan.py: Chosen)
    medians   of load: by strategy, the medians over the rounds of the figures in its table
    """

    started: Required[str]
    machine: Required[Machine]
    nodes: Required[int]
    workers: Required[int]
    threads: Required[int]
    server: str
    runs: Required[Sequence[Run]]
    seed: int
    minutes: float
    rushes: Sequence[Mapping[str, Any]]
    canaries: Mapping[str, int]
    rounds: int
    target: Rushed
    load: Mapping[str, Any]
    medians: Mapping[str, Mapping[str, Any]]
