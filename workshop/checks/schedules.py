"""Lesson 1: two schedules without a lock, one that sells twice and one that does not."""

from __future__ import annotations

from types import ModuleType

from workshop.refusal import Refusal

MOVES = 3


def refusal(module: ModuleType) -> Refusal | None:
    """What is wrong with the two schedules; None if nothing is."""
    twice, once = (
        given.upper() if isinstance(given, str) else given
        for given in (getattr(module, "SELLS_TWICE", ""), getattr(module, "DOES_NOT", ""))
    )
    if not twice and not once:
        return Refusal("todo")
    for given in (twice, once):
        if not isinstance(given, str) or sorted(given) != sorted("AB" * MOVES):
            a, b = (str(given).count(letter) for letter in "AB")
            return Refusal("not-a-schedule", {"given": given, "a": a, "b": b})
    from shop.demo.schedules import Scheduler

    with Scheduler("none") as scheduler:
        runs = [scheduler.run(schedule, units=1) for schedule in (twice, once)]
    first, second = (run.violates for run in runs)
    story = tuple(str(run) for run in runs)
    if not first and second:
        return Refusal("swapped", {}, story)
    if not first:
        return Refusal("serial", {"given": twice}, story[:1])
    return Refusal("sells-twice", {"given": once}, story[1:]) if second else None
