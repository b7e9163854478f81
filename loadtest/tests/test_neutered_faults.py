"""Each fault, neutered in each way that looks like a pass: every one of its cells shows nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from redis import ResponseError

from loadtest.expected import EXPECTED
from loadtest.faults.trial import STOCK
from loadtest.judge.intervals import ProductHistory
from loadtest.judge.verdict import Reply, judge
from loadtest.tests.fake_testbed import GONE, MASTER, NODE_A, RUNS, WORKER, Facts, T, down, made
from loadtest.tests.fake_testbed import missing as why

Prove = Callable[[Any, Any, Sequence[Any]], object]


def goes_on(trial: Any) -> None:
    """Nobody has to be resumed."""
    trial.resume_victim = trial.resume_rivals = lambda: None


def prove(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
    """The proof alone."""
    fault.prove(testbed, trials)


def was_stopped(seconds: float) -> Prove:
    """The proof, when the victims were stopped for so long."""

    def prove(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
        for trial in trials:
            trial.entered_at = time.monotonic() - seconds
            trial.outlast_ttl()

    return prove


def continues(lasted: float) -> Prove:
    """The proof, and what is looked at before node A continues."""

    def prove(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
        fault.prove(testbed, trials)
        fault.since = time.monotonic() - lasted
        fault.meanwhile(testbed, trials)

    return prove


def is_answered(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
    """What the victim is answered when everybody goes on."""
    for trial in trials:
        goes_on(trial)
        trial.expected = "exact"
        fault.resume(trial)


def had(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
    """The proof of a fault that takes locks away, which noted before what there was."""
    facts = testbed.facts
    fault.held = [trial.lock for trial in trials]
    fault.before = 0 if fault.name == "eviction" else facts.run_ids[:1]
    fault.with_ttl = {trial.lock for trial in trials}
    fault.prove(testbed, trials)


def asks_once(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
    """lost-reply: the victim's only answer, and what is on the server then."""
    rule = SimpleNamespace(wait=lambda seconds: testbed.facts.dropped)
    fault.rules = {trial.lock: rule for trial in trials}
    for trial in trials:
        if trial.lock == "redlock":
            trial.victim.first = ""  # it stops before it is answered
    fault.before, fault.clients = {trial.lock: {} for trial in trials}, {}
    fault.on_server = lambda trial: {"lock:x": "v"} if testbed.facts.keys else {}
    for trial in trials:
        trial.buyer = lambda name, stop="", victim=trial.victim: victim
        trial.send = lambda buyer, node=0: buyer
        trial.is_stopped_at = lambda buyer, point="": True
        try:
            fault.enter(trial)
        except Exception as error:
            trial.miss(str(error))


def each_asks_again(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
    """unknown-commit: ten victims ask, and ask again."""
    fault.orders_of = lambda trial, key: [1] * testbed.facts.orders
    for trial in trials:
        trial.buyer = lambda name, victim=trial.victim: victim
        trial.send = lambda buyer, node=0: buyer
        fault.act(trial)


def asks_while(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
    """The proof, and buyers who are answered while the fault should last."""
    fault.pid = WORKER
    fault.unkillable = "UNKILLABLE"
    fault.prove(testbed, trials)
    for trial in trials:
        trial.ask_once = lambda name, node=0: "unavailable"
        goes_on(trial)
        (fault.meet if fault.name == "busy" else fault.act)(trial)


def prove_busy(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
    """The proof alone."""
    fault.unkillable = "UNKILLABLE"
    fault.prove(testbed, trials)


def prove_stall(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
    """The proof alone."""
    fault.pid = WORKER
    fault.prove(testbed, trials)


def acts(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
    """Buyers are answered as they should be, whatever the server does by then."""
    fault.pid = WORKER
    for trial in trials:
        trial.ask_once = lambda name, node=0: "unavailable"
        fault.act(trial)


def was_killed(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
    """db-kill: the backends that were ended, and what the victims were answered."""
    fault.killed = list(range(testbed.facts.ended))
    fault.prove(testbed, trials)
    for trial in trials:
        goes_on(trial)
        fault.resume(trial)


def was_terminated(fault: Any, testbed: Any, trials: Sequence[Any]) -> None:
    """shutdown: the node before and after it has answered everybody."""
    fault.process = testbed.nodes[0].process
    fault.prove(testbed, trials)


#: The faults whose proofs this table is about.
OLD = {
    *("crash", "slow", "late-release", "pause", "pause@acquired", "clock", "restart", "failover"),
    *("failover@sentinel", "quorum", "lost-reply", "unknown-commit", "busy", "redis-down"),
    *("stall", "eviction", "db-kill", "shutdown", "shutdown@short"),
}
RUNNING = dict.fromkeys(NODE_A, RUNS)
ALL_GONE = dict.fromkeys(NODE_A, GONE)
MASTER_GONE = {MASTER: GONE, WORKER: RUNS}
MASTER_STOPPED = {MASTER: T, WORKER: RUNS}
REFUSES = down()
BUSY_ERROR = ResponseError("BUSY Redis is busy running a script")

#: fault, how it is neutered (empty: it is not), the proof, what there is to measure
TABLE: list[tuple[str, str, Prove, Facts]] = [
    ("crash", "", prove, Facts(states=ALL_GONE)),
    ("crash", "no signal", prove, Facts(states=RUNNING, first="sold")),
    ("crash", "master only", prove, Facts(states=MASTER_GONE)),
    ("crash", "worker only", prove, Facts(states={MASTER: RUNS, WORKER: GONE})),
    ("crash", "a ttl of 60 s", prove, Facts(states=ALL_GONE, ttl=60)),
    ("crash", "the victims were answered", prove, Facts(states=ALL_GONE, first="sold")),
    ("slow", "", was_stopped(1.5), Facts()),
    ("slow", "a ttl of 60 s", was_stopped(1.5), Facts(ttl=60)),
    ("late-release", "", was_stopped(1.5), Facts()),
    ("late-release", "a ttl of 60 s", was_stopped(1.5), Facts(ttl=60)),
    ("late-release", "nobody committed", prove, Facts()),
    ("pause", "", continues(2.0), Facts()),
    ("pause", "no signal", prove, Facts(states=RUNNING)),
    ("pause", "master only", prove, Facts(states=MASTER_STOPPED)),
    ("pause", "a ttl of 60 s", continues(2.0), Facts(ttl=60)),
    ("pause", "for a moment", continues(0.1), Facts()),
    ("pause@acquired", "", continues(2.0), Facts()),
    ("pause@acquired", "no signal", prove, Facts(states=RUNNING)),
    ("pause@acquired", "master only", prove, Facts(states=MASTER_STOPPED)),
    ("pause@acquired", "a ttl of 60 s", continues(2.0), Facts(ttl=60)),
    ("pause@acquired", "the fence did nothing", is_answered, Facts(first="sold")),
    ("clock", "", prove, Facts()),
    ("clock", "not ahead", prove, Facts(ahead=(0.0, 0.0))),
    ("clock", "both ahead", prove, Facts(ahead=(60.0, 60.0))),
    ("restart", "", had, Facts()),
    ("restart", "no kill", had, Facts(run_ids=("old", "old", "old"))),
    ("restart", "the locks survived", had, Facts(keys=True)),
    ("failover", "", had, Facts()),
    ("failover", "not promoted", had, Facts(role="slave")),
    ("failover", "no switch", had, Facts(run_ids=("old", "new", "old"))),
    ("failover", "replicated", had, Facts(keys=True)),
    ("failover@sentinel", "", had, Facts()),
    ("failover@sentinel", "not promoted", had, Facts(role="slave")),
    ("failover@sentinel", "no switch", had, Facts(run_ids=("old", "new", "old"))),
    ("failover@sentinel", "replicated", had, Facts(keys=True)),
    ("quorum", "nothing cut off", prove, Facts(answering=(5,))),
    ("quorum", "one cut off", prove, Facts(answering=(4,))),
    ("quorum", "", prove, Facts(answering=(3,))),
    ("lost-reply", "", asks_once, Facts(first="unavailable", keys=True)),
    ("lost-reply", "the reply was delivered", asks_once, Facts(first="sold", keys=True)),
    ("lost-reply", "the request was dropped", asks_once, Facts(first="unavailable")),
    ("lost-reply", "nothing dropped", asks_once, Facts(first="sold", keys=True, dropped=False)),
    ("unknown-commit", "", each_asks_again, Facts()),
    ("unknown-commit", "COMMIT was dropped", each_asks_again, Facts(orders=0)),
    ("unknown-commit", "nothing dropped", each_asks_again, Facts(first="sold", dropped=False)),
    ("busy", "", asks_while, Facts(redis=BUSY_ERROR)),
    ("busy", "not busy", prove_busy, Facts()),
    ("busy", "busy no longer", asks_while, Facts()),
    ("redis-down", "", asks_while, Facts(redis=REFUSES)),
    ("redis-down", "no kill", prove, Facts()),
    ("redis-down", "back too early", acts, Facts()),
    ("stall", "", asks_while, Facts(states={WORKER: T})),
    ("stall", "no signal", prove_stall, Facts(states={WORKER: RUNS})),
    ("stall", "went on too early", acts, Facts(states={WORKER: RUNS})),
    ("eviction", "", had, Facts()),
    ("eviction", "nothing evicted", had, Facts(evicted=0)),
    ("eviction", "the locks survived", had, Facts(keys=True)),
    ("db-kill", "", was_killed, Facts(first="unavailable")),
    ("db-kill", "no kill", was_killed, Facts(ended=0, first="sold")),
    ("db-kill", "half of them", was_killed, Facts(ended=11, first="unavailable")),
    ("db-kill", "they are still there", was_killed, Facts(left=22, first="unavailable")),
    ("db-kill", "others", was_killed, Facts(first="sold")),
    ("shutdown", "", was_terminated, Facts()),
    ("shutdown", "no signal", was_terminated, Facts(accepts=True)),
    ("shutdown", "a crash", was_terminated, Facts(code=-9)),
    ("shutdown@short", "", was_terminated, Facts(states=ALL_GONE, code=0)),
    ("shutdown@short", "no signal", was_terminated, Facts(states=RUNNING, first="sold")),
    ("shutdown@short", "master only", was_terminated, Facts(states=MASTER_GONE, code=0)),
    ("shutdown@short", "they were answered", was_terminated, Facts(ALL_GONE, first="sold", code=0)),
]


@pytest.mark.parametrize(
    ("fault", "how", "prove", "facts"),
    TABLE,
    ids=[f"{name}-{how or 'real'}" for name, how, *_ in TABLE],
)
def test_a_neutered_fault_shows_nothing_in_each_of_its_cells_and_a_real_one_does(
    fault: str, how: str, prove: Prove, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtest.faults.pause.PAUSE", 0.0)
    monkeypatch.setattr("loadtest.faults.pause.until", lambda condition, seconds: condition())
    one, testbed, trials = made(fault, facts, monkeypatch)
    shown = why(trials, partial(prove, one, testbed, trials))
    assert list(shown) == [lock for lock, row in EXPECTED.items() if fault in row]
    if "60 s" in how:  # a lock without an end of its own has no ttl to be changed
        shown = {trial.lock: trial.missing for trial in trials if trial.lock_ttl is not None}
    for lock, missing in shown.items():
        assert bool(missing) == bool(how), f"{lock} under {fault}, {how or 'real'}: {missing}"


def test_every_fault_is_neutered_here() -> None:
    real = {fault for fault, how, *_ in TABLE if not how}
    assert real == {fault for fault, how, *_ in TABLE if how}
    assert real >= OLD


def test_a_sale_that_looks_exact_is_unknown_when_its_fault_did_nothing() -> None:
    orders = [{"order": number, "key": f"k{number}"} for number in range(STOCK)]
    replies = [Reply(f"k{number}", "sold", number) for number in range(STOCK)]
    found = [
        judge(
            initial_stock=STOCK,
            stock_left=0,
            orders=orders,
            replies=replies,
            history=ProductHistory(),
            fired=fired,
        ).verdict
        for fired in (True, False)
    ]
    assert found == ["exact", "unknown"]
