"""The proof of each fault, as far as it decides from a FakeTestbed's facts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from loadtest.tests.fake_testbed import WORKER

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
