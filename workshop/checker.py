"""Runs the checks of an exercise, one after the other, up to the first refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loadtest.judge.run import Cell
from workshop import shop_faults
from workshop.bench import BUYERS, STOCK, Bench, outcomes
from workshop.lessons import Lesson
from workshop.refusal import Refusal, Undecided

#: Exit codes of `check`.
PASSED, REFUSED, UNDECIDED = 0, 1, 2
#: Seconds that a check takes on two cores.
SECONDS = {"rush": 2, **dict.fromkeys(shop_faults.CONTROLS, 6), "boss": 90}
OTHERWISE = 2


@dataclass(frozen=True, slots=True)
class Result:
    """How a check ended. `printed` is what the participant's code printed, `cells` what the whole
    row of faults came to."""

    refusal: Refusal | None = None
    undecided: str = ""
    printed: str = ""
    cells: Sequence[Cell] = ()

    @property
    def exit_code(self) -> int:
        return UNDECIDED if self.undecided else REFUSED if self.refusal else PASSED

    def named(self, copy: str, name: str) -> Result:
        """The same, with the name of the participant's file where that of its copy was."""
        refusal = self.refusal
        if refusal is not None:
            facts = {
                key: fact.replace(copy, name) if isinstance(fact, str) else fact
                for key, fact in refusal.facts.items()
            }
            refusal = replace(refusal, facts=facts)
        return replace(self, refusal=refusal)


def check(lesson: Lesson, file: Path, bench: Bench) -> Result:
    """Check the exercise in this file. An error of a server means undecided, and that the servers
    need a restart. Raises StackError where a node cannot be started again."""
    if not file.exists():
        return Result(Refusal("gone", {"file": file.name}))
    printed, cells = "", list[Cell]()
    try:
        for kind in lesson.checks:
            said = ""
            if kind == "rush":
                found = _rush(bench)
            elif kind == "boss":
                found, cells = shop_faults.row(bench)
            elif kind in shop_faults.CONTROLS:
                found = shop_faults.refusal(bench, kind)
            else:
                found, said = bench.in_a_process(kind)
            printed += said
            if found is not None:
                return Result(found, printed=printed, cells=cells)
    except Undecided as error:
        return Result(undecided=str(error), printed=printed)
    return Result(printed=printed, cells=cells)


def announced(lesson: Lesson) -> str:
    """What is about to be done: "ending, then rush, about 4 s"."""
    kinds = ", then ".join(kind.replace("_", " ") for kind in lesson.checks)
    return f"{kinds}, about {sum(SECONDS.get(kind, OTHERWISE) for kind in lesson.checks)} s"


def _rush(bench: Bench) -> Refusal | None:
    judgement, error = bench.rush()
    facts = {"buyers": BUYERS, "error": error, **outcomes(judgement)}
    if judgement.oversold or judgement.lost_updates > 0:
        return Refusal("rush-oversold", facts)
    if error:
        return Refusal("rush-error", facts)
    if judgement.orders < STOCK:
        bench.renew_if_hung()
        gave_up = judgement.outcomes.get("sold_out", 0) + judgement.orders == BUYERS
        return Refusal("rush-gave-up" if gave_up else "rush-stuck", facts)
    if judgement.verdict != "exact":
        raise Undecided(f"the rush came to {judgement.verdict}: run it again")
    return None
