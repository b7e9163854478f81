"""Runs the checks of an exercise, one after the other, up to the first refusal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workshop.bench import BUYERS, STOCK, Bench, outcomes
from workshop.lessons import Lesson
from workshop.refusal import Refusal, Undecided

#: Exit codes of `check`.
PASSED, REFUSED, UNDECIDED = 0, 1, 2
#: Seconds that a check takes on two cores.
SECONDS = {"rush": 2}
OTHERWISE = 2


@dataclass(frozen=True, slots=True)
class Result:
    """How a check ended. `printed` is what the participant's code printed."""

    refusal: Refusal | None = None
    undecided: str = ""
    printed: str = ""

    @property
    def exit_code(self) -> int:
        return UNDECIDED if self.undecided else REFUSED if self.refusal else PASSED


def check(lesson: Lesson, file: Path, bench: Bench) -> Result:
    """What became of the exercise in this file. It raises nothing: what fails is undecided."""
    if not file.exists():
        return Result(Refusal("gone", {"file": file.name}))
    printed = ""
    try:
        for kind in lesson.checks:
            found, said = _rush(bench) if kind == "rush" else bench.in_a_process(kind)
            printed += said
            if found is not None:
                return Result(found, printed=printed)
    except Undecided as error:
        bench.renew_if_hung()
        return Result(undecided=str(error), printed=printed)
    return Result(printed=printed)


def announced(lesson: Lesson) -> str:
    """What is about to be done: "ending, then rush, about 4 s"."""
    kinds = ", then ".join(kind.replace("_", " ") for kind in lesson.checks)
    return f"{kinds}, about {sum(SECONDS.get(kind, OTHERWISE) for kind in lesson.checks)} s"


def _rush(bench: Bench) -> tuple[Refusal | None, str]:
    judgement = bench.rush()
    facts = {"buyers": BUYERS, **outcomes(judgement)}
    if judgement.oversold or judgement.lost_updates > 0:
        return Refusal("rush-oversold", facts), ""
    if judgement.orders < STOCK:
        bench.renew_if_hung()
        gave_up = judgement.outcomes.get("sold_out", 0) + judgement.orders == BUYERS
        return Refusal("rush-gave-up" if gave_up else "rush-stuck", facts), ""
    if judgement.verdict != "exact":
        raise Undecided(f"the rush came to {judgement.verdict}: run it again")
    return None, ""
