"""One fault, made once for all the strategies that it concerns: a column of the matrix."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loadtest.expected import EXPECTED
from loadtest.faults.fault import Fault, NotFired
from loadtest.faults.testbed import TTL, Stage, until
from loadtest.faults.trial import BUYERS, STOCK, Scene, each
from loadtest.judge.history import Event, by_product, read
from loadtest.report.timeline import timeline

Cell = dict[str, Any]


def play(
    stage: Stage, fault: Fault, strategies: Sequence[Mapping[str, Any]], run: str
) -> list[Cell]:
    """Make the fault and judge every strategy that expects something of it.

    Returns a cell for each, as a run of `summary.json` (design section 4) with more.
    """
    concerned = [one for one in strategies if fault.name in EXPECTED[one["name"]]]
    scenes = [Scene(stage, fault, one, run) for one in concerned if one["available"]]
    missing = [_not_run(fault, one) for one in concerned if not one["available"]]
    if not scenes:
        return missing
    if fault.ttl != TTL:
        stage.set_ttl(fault.ttl)
    each(scenes, Scene.open)
    try:
        evidence = _make(stage, fault, scenes)
        each(scenes, Scene.drain)
    finally:
        fault.leave(stage)
    until(lambda: not any(scene.orphans() for scene in scenes), fault.ttl + 0.5)
    if fault.ttl != TTL:
        stage.set_ttl(TTL)
    events = by_product(read(stage.files()))
    evidence = "; ".join(filter(None, (evidence, fault.seen(scenes))))
    return [*(_cell(fault, scene, events, evidence) for scene in scenes), *missing]


def _make(stage: Stage, fault: Fault, scenes: Sequence[Scene]) -> str:
    """Arm, fire, prove, act, heal. Returns the evidence; if there is none, every scene says why."""

    def say(phase: str, what: str, kind: str = "ok") -> None:
        stage.tell(fault.name, kind, phase, what)

    try:
        fault.arm(stage, scenes)
        say("arm", fault.title)
        each(scenes, _or_missing(fault.enter))
        fired_at = time.monotonic()
        for scene in scenes:
            scene.fired_at = fired_at
        say("fire", fault.title, "invoke")
        fault.fire(stage, scenes)
        evidence = fault.prove(stage, scenes)
        say("prove", evidence)
        acting = threading.Thread(target=each, args=(scenes, _or_missing(fault.act)), daemon=True)
        acting.start()
        fault.meanwhile(stage, scenes)
        acting.join()
        return evidence
    except NotFired as error:
        say("prove", str(error), "fail")
        for scene in scenes:
            scene.missing = scene.missing or str(error)
        return f"did not fire: {error}"
    finally:
        fault.over.set()
        _let_all_go(scenes)
        fault.heal(stage, scenes)
        say("heal", "all as it was")


def _or_missing(what: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """What is done for one scene: if it cannot be, that scene shows nothing, and says why."""

    def one(scene: Scene) -> None:
        try:
            what(scene)
        except NotFired as error:
            scene.missing = scene.missing or str(error)
        except Exception as error:  # an error of ours, too, must never look like a pass
            scene.missing = scene.missing or f"{type(error).__name__}: {error}"

    return one


def _let_all_go(scenes: Sequence[Scene]) -> None:
    """Nobody stands anywhere any more, whatever went wrong."""
    for scene in scenes:
        for buyer in scene.buyers:
            if buyer.stop:
                scene.stage.let_go(buyer.attempt, buyer.stop)


def _cell(fault: Fault, scene: Scene, events: Mapping[str, list[Event]], evidence: str) -> Cell:
    history = [e for e in events[scene.product] if e["by"] != "fault" or e["f"] == fault.name]
    judgement = scene.judge(history, orphan=", ".join(scene.orphans()))
    kept = scene.strategy["renewed"] and not fault.takes_the_lock
    if kept and "overlap" in judgement.violations:  # that a fence repaired it is no excuse
        scene.broke("two holders at a time, and the fault took no lock away")
    as_expected = judgement.verdict == scene.expected and not (scene.wrong or scene.missing)
    return {
        "lock": scene.lock,
        "fault": fault.name,
        "sale": scene.sale,
        "buyers": BUYERS,
        "hold_ms": 0,
        **judgement.as_run(),
        "expected": scene.expected,
        "as_expected": as_expected,
        "evidence": evidence,
        "missing": scene.missing,
        "wrong": list(scene.wrong),
        "recovery_s": scene.recovery() if fault.recovery else None,
        "story": timeline(history, judgement) if judgement.verdict != "exact" else [],
    }


def _not_run(fault: Fault, strategy: Mapping[str, Any]) -> Cell:
    """The cell of a strategy whose server is missing: said, not passed over."""
    return {
        "lock": strategy["name"],
        "fault": fault.name,
        "buyers": BUYERS,
        "initial_stock": STOCK,
        "hold_ms": 0,
        **dict.fromkeys(("orders", "stock_left", "oversold", "undersold", "lost_updates"), 0),
        "outcomes": {},
        "violations": [],
        "verdict": "not_run",
        "expected": EXPECTED[strategy["name"]][fault.name],
        "as_expected": not os.environ.get("CI"),  # there, nothing may be missing
        "evidence": "",
        "missing": f"{strategy['needs']} is not set, and no such server is installed",
        "wrong": [],
        "recovery_s": None,
        "story": [],
    }
