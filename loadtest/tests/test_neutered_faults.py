"""Each fault, neutered in each way that looks like a pass: every one of its cells shows nothing."""

from __future__ import annotations

from functools import partial

import pytest
from redis import ResponseError

from loadtest.expected import EXPECTED
from loadtest.faults.trial import STOCK
from loadtest.judge.intervals import ProductHistory
from loadtest.judge.verdict import Reply, judge
from loadtest.tests.fake_testbed import GONE, MASTER, NODE_A, RUNS, WORKER, Facts, T, down, made
from loadtest.tests.fake_testbed import missing as why
from loadtest.tests.fault_proofs import (
    Prove,
    acts,
    asks_once,
    asks_while,
    continues,
    each_asks_again,
    had,
    is_answered,
    prove,
    prove_busy,
    prove_stall,
    was_killed,
    was_stopped,
    was_terminated,
)

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
    ("db-kill", "they are still there", was_killed, Facts(left=24, first="unavailable")),
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
