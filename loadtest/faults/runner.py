"""Makes one fault for all the strategies that it concerns, and judges each."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from loadtest.expected import EXPECTED
from loadtest.faults.fault import Fault, NotFired
from loadtest.faults.testbed import Testbed, until
from loadtest.faults.trial import BUYERS, STOCK, Trial, each
from loadtest.judge.history import Event, by_product
from loadtest.judge.intervals import ProductHistory
from loadtest.judge.run import Cell
from loadtest.report.timeline import timeline


def play(
    testbed: Testbed, fault: Fault, strategies: Sequence[Mapping[str, Any]], run: str
) -> list[Cell]:
    """Make the fault, and judge every strategy that has an expected verdict under it.

    run  makes the names of products and the keys of attempts unique
    """
    concerned = [one for one in strategies if fault.name in EXPECTED[one["name"]]]
    trials = [Trial(testbed, fault, one, run) for one in concerned if one["available"]]
    missing = [_not_run(fault, one) for one in concerned if not one["available"]]
    if not trials:
        return missing
    testbed.new_events()  # those of the faults before this one
    testbed.set_ttl(fault.ttl)
    each(trials, Trial.open)
    try:
        evidence = _make(testbed, fault, trials)
        each(trials, Trial.drain)
        until(lambda: not any(trial.orphans() for trial in trials), fault.ttl + 0.5)
        events = by_product(testbed.new_events())
        evidence = "; ".join(filter(None, (evidence, fault.observed(trials))))
        return [*(_cell(fault, trial, events, evidence) for trial in trials), *missing]
    finally:
        fault.clean_up(testbed)


def _make(testbed: Testbed, fault: Fault, trials: Sequence[Trial]) -> str:
    """Arm, fire, prove, act, heal. Returns the evidence; without it every trial says why."""

    def record(phase: str, what: str, kind: str = "ok") -> None:
        testbed.record_fault(fault.name, kind, phase, what)

    try:
        fault.arm(testbed, trials)
        record("arm", fault.title)
        each(trials, _or_missing(fault.enter))
        fired_at = time.monotonic()
        for trial in trials:
            trial.fired_at = fired_at
        record("fire", fault.title, "invoke")
        fault.fire(testbed, trials)
        evidence = fault.prove(testbed, trials)
        record("prove", evidence)
        acting = threading.Thread(target=each, args=(trials, _or_missing(fault.act)), daemon=True)
        acting.start()
        fault.meanwhile(testbed, trials)
        acting.join()
        return evidence
    except NotFired as error:
        record("prove", str(error), "fail")
        for trial in trials:
            trial.missing = trial.missing or str(error)
        return f"did not fire: {error}"
    finally:
        fault.may_resume.set()
        _resume_everybody(trials)
        fault.heal(testbed, trials)
        record("heal", "healed")


def _or_missing(what: Callable[[Trial], None]) -> Callable[[Trial], None]:
    """Do it for one trial. If it fails, that trial shows nothing, and says why."""

    def one(trial: Trial) -> None:
        try:
            what(trial)
        except NotFired as error:
            trial.missing = trial.missing or str(error)
        except Exception as error:  # nor may an error of ours look like a pass
            trial.missing = trial.missing or f"{type(error).__name__}: {error}"

    return one


def _resume_everybody(trials: Sequence[Trial]) -> None:
    """Resume every buyer that may be stopped, whatever went wrong."""
    for trial in trials:
        for buyer in trial.buyers:
            if buyer.stop:
                trial.testbed.resume(buyer.attempt, buyer.stop)


def _cell(fault: Fault, trial: Trial, events: Mapping[str, list[Event]], evidence: str) -> Cell:
    mine = [e for e in events[trial.product] if e["by"] != "fault" or e["f"] == fault.name]
    history = ProductHistory(mine)
    judgement = trial.judge(history, orphan=", ".join(trial.orphans()))
    keeps_lock = trial.strategy["renewed"] and not fault.takes_the_lock
    if keeps_lock and "overlap" in judgement.violations:  # though a fence may have repaired it
        trial.wrong.append("two holders at a time, and the fault took no lock away")
    as_expected = judgement.verdict == trial.expected and not (trial.wrong or trial.missing)
    cell = {
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
        "recovery_s": trial.recovery() if fault.recovery else None,
        "story": timeline(history, judgement) if judgement.verdict != "exact" else [],
    }
    return cast(Cell, cell)


def _not_run(fault: Fault, strategy: Mapping[str, Any]) -> Cell:
    """The cell of a strategy whose server is not installed."""
    return {
        "lock": strategy["name"],
        "fault": fault.name,
        "buyers": BUYERS,
        "initial_stock": STOCK,
        "hold_ms": 0,
        "orders": 0,
        "stock_left": 0,
        "oversold": 0,
        "undersold": 0,
        "lost_updates": 0,
        "outcomes": {},
        "violations": [],
        "verdict": "not_run",
        "expected": EXPECTED[strategy["name"]][fault.name],
        "as_expected": not os.environ.get("CI"),  # where no server may be missing
        "evidence": "",
        "missing": f"{strategy['needs']} is not set, and no such server is installed",
        "wrong": [],
        "recovery_s": None,
        "story": [],
    }
