"""Makes one fault for all the strategies that it concerns, and judges each."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

from loadtest.expected import expected_of
from loadtest.faults.drain import BUYERS, drain
from loadtest.faults.fault import Fault, NotFired
from loadtest.faults.parallel import each
from loadtest.faults.repair import repair
from loadtest.faults.testbed import Testbed, until
from loadtest.faults.trial import STOCK, Trial
from loadtest.judge.history import Event, by_product
from loadtest.judge.intervals import ProductHistory
from loadtest.judge.run import Cell
from loadtest.report.story import timeline
from loadtest.stack.client import Strategy

#: Seconds to wait for the buyers' threads after a step of their fault failed.
ACT_TIMEOUT = 15.0


def play(testbed: Testbed, fault: Fault, strategies: Sequence[Strategy], run: str) -> list[Cell]:
    """Make the fault, and judge every strategy that has an expected verdict under it.

    run  makes the names of products and the keys of attempts unique

    A fault that did not fire, or an error on the way, makes every cell of it `unknown` with the
    reason, and the testbed is put back to how it began. Raises what keeps that from happening.
    """
    concerned = [one for one in strategies if fault.name in expected_of(one)]
    tried = [one for one in concerned if one["available"]]
    missing = [_not_run(fault, one) for one in concerned if not one["available"]]
    if not tried:
        return missing
    trials = [Trial(testbed, fault, one, run) for one in tried]
    try:
        return [*_play(testbed, fault, trials), *missing]
    except Exception as error:
        testbed.log.write(traceback.format_exc().encode())
        _abandon(trials)
        repair(testbed)
        why = str(error) if isinstance(error, NotFired) else f"{type(error).__name__}: {error}"
        return [*unknown(fault.name, tried, why), *missing]


def _play(testbed: Testbed, fault: Fault, trials: Sequence[Trial]) -> list[Cell]:
    testbed.new_events()  # those of the faults before this one
    if _deferred(trials):
        testbed.settle()
    testbed.set_ttl(fault.ttl)
    each(trials, Trial.open)
    with _afterwards(lambda: fault.clean_up(testbed)):
        evidence = _make(testbed, fault, trials)
        each(trials, drain)
        until(lambda: not any(trial.orphans() for trial in trials), fault.ttl + 0.5)
        new = testbed.new_events()
        events = by_product(new, earlier=testbed.events())
        evidence = "; ".join(filter(None, (evidence, fault.observed(trials))))
        left = sorted(key.split("/", 2)[2] for key in testbed.keys_on_lock_servers())
        return [cell(fault, trial, events, evidence, left) for trial in trials]


def _make(testbed: Testbed, fault: Fault, trials: Sequence[Trial]) -> str:
    """Arm, fire, prove, act, heal. Returns the evidence. Raises NotFired, or what a step raises."""

    def record(phase: str, what: str, kind: str = "ok") -> None:
        testbed.record_fault(fault.name, kind, phase, what)

    acting = threading.Thread(target=each, args=(trials, _or_missing(fault.act)), daemon=True)

    def end() -> None:
        fault.may_resume.set()
        _resume_everybody(trials)
        if acting.is_alive():
            acting.join(ACT_TIMEOUT)
        if fault.loses_promises and _deferred(trials):
            testbed.settle()
        fault.heal(testbed, trials)
        record("heal", "healed")

    with _afterwards(end), _recorded(record):
        fault.arm(testbed, trials)
        record("arm", fault.title)
        if fault.loses_promises and _deferred(trials):
            testbed.stop_settling()
        each(trials, _or_missing(fault.enter))
        fired_at = time.monotonic()
        for trial in trials:
            trial.fired_at = fired_at
        record("fire", fault.title, "invoke")
        fault.fire(testbed, trials)
        evidence = fault.prove(testbed, trials)
        record("prove", evidence)
        acting.start()
        fault.meanwhile(testbed, trials)
        acting.join()
    return evidence


def _deferred(trials: Sequence[Trial]) -> bool:
    """Whether consumers have to write orders for one of them."""
    return any(trial.strategy["deferred"] for trial in trials)


@contextmanager
def _recorded(record: Callable[[str, str, str], None]) -> Iterator[None]:
    """Record a fault that did not fire."""
    try:
        yield
    except NotFired as error:
        record("prove", str(error), "fail")
        raise


@contextmanager
def _afterwards(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` after the block. If the block raises, its error counts and not that of `end`."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            end()
        raise
    end()


def _abandon(trials: Sequence[Trial]) -> None:
    """A step of the fault failed: let no buyer ask again, and resume all that are stopped."""
    for trial in trials:
        for buyer in trial.buyers:
            buyer.give_up()
    _resume_everybody(trials)


def _or_missing(what: Callable[[Trial], None]) -> Callable[[Trial], None]:
    """Do it for one trial. If it fails, that trial shows nothing, and says why."""

    def one(trial: Trial) -> None:
        try:
            what(trial)
        except NotFired as error:
            trial.miss(str(error))
        except Exception as error:  # nor may an error of ours look like a pass
            trial.miss(f"{type(error).__name__}: {error}")

    return one


def _resume_everybody(trials: Sequence[Trial]) -> None:
    """Resume every buyer that may be stopped, whatever went wrong."""
    for trial in trials:
        for buyer in trial.buyers:
            if buyer.stop:
                trial.testbed.resume(buyer.attempt, buyer.stop)


def cell(
    fault: Fault,
    trial: Trial,
    events: Mapping[str, list[Event]],
    evidence: str,
    left: Sequence[str],
) -> Cell:
    """Judge one trial. `left` has the keys that are on the lock servers after everybody's drain."""
    mine = [e for e in events[trial.product] if e["by"] != "fault" or e["f"] == fault.name]
    history = ProductHistory(mine)
    orphans = trial.orphans()
    leaked = [key for key in left if trial.is_leaked(key) and key not in orphans]
    judgement = trial.judge(history, orphan=", ".join(orphans), leaked=leaked)
    keeps_lock = trial.strategy["renewed"] and not fault.takes_the_lock
    if keeps_lock and "overlap" in judgement.violations:  # though a fence may have repaired it
        trial.wrong.append("two holders at a time, and the fault took no lock away")
    recovery = trial.recovery() if fault.recovery else None
    bound = fault.longest_recovery(trial.strategy)
    if judgement.verdict == "exact" and recovery is not None and recovery > bound:
        trial.wrong.append(f"nobody bought for {recovery:.1f} s, and the bound is {bound:g} s")
    as_expected = judgement.verdict == trial.expected and not (trial.wrong or trial.missing)
    found = {
        "lock": trial.lock,
        "fault": fault.name,
        "sale": trial.sale,
        "buyers": BUYERS,
        "hold_ms": 0,
        **judgement.as_run(),
        "expected": trial.expected,
        "as_expected": as_expected,
        "evidence": evidence,
        "missing": trial.missing,
        "wrong": list(trial.wrong),
        "recovery_s": recovery,
        "story": timeline(history, judgement) if judgement.verdict != "exact" else [],
    }
    return cast(Cell, found)


def unknown(fault: str, strategies: Sequence[Strategy], why: str) -> list[Cell]:
    """The cells of a fault that showed nothing, with the reason."""
    verdict = {"verdict": "unknown", "as_expected": False, "evidence": f"none: {why}"}
    return [cast(Cell, _empty(fault, one) | verdict | {"missing": why}) for one in strategies]


def _not_run(fault: Fault, strategy: Strategy) -> Cell:
    """The cell of a strategy whose server is not installed."""
    verdict = {
        "verdict": "not_run",
        "as_expected": not os.environ.get("CI"),  # where no server may be missing
        "missing": f"{strategy['needs']} is not set, and no such server is installed",
    }
    return cast(Cell, _empty(fault.name, strategy) | verdict)


def _empty(fault: str, strategy: Strategy) -> dict[str, Any]:
    return {
        "lock": strategy["name"],
        "fault": fault,
        "buyers": BUYERS,
        "initial_stock": STOCK,
        "hold_ms": 0,
        **dict.fromkeys(("orders", "stock_left", "oversold", "undersold", "lost_updates"), 0),
        "outcomes": {},
        "violations": [],
        "expected": expected_of(strategy)[fault],
        "evidence": "",
        "wrong": [],
        "recovery_s": None,
        "story": [],
    }
