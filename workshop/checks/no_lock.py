"""Lessons 11 and 12: nothing but the database; and what any purchase must do, in a moment."""

from types import ModuleType

from django.db import IntegrityError, OperationalError

from shop.ops.redis import locks_client
from workshop.checks.purchases import (
    alone,
    broken,
    every_run,
    install,
    killed,
    second_of_one,
    statements,
    told,
)
from workshop.refusal import Refusal


def refusal(module: ModuleType) -> Refusal | None:
    """The first fault in how the database is asked, or None."""
    install(module)
    return _without_a_lock() or killed() or _schedules() or second_of_one()


def any_purchase(module: ModuleType) -> Refusal | None:
    """The first fault of a purchase whose buyers come one after the other, or None."""
    install(module)
    return alone() or killed() or second_of_one()


def _without_a_lock() -> Refusal | None:
    """The first buyer gets the unit, and Redis holds nothing meanwhile."""
    locked: list[int] = []
    found = alone(lambda: locked.append(int(locks_client().dbsize())))
    return found or (Refusal("uses-a-lock", {"keys": locked[0]}) if any(locked) else None)


def _schedules() -> Refusal | None:
    """No sequence of two buyers' moves sells a unit twice, or gives up or breaks off."""
    try:
        for run in every_run():
            facts, story = {"schedule": run.schedule}, (told(run),)
            if run.violates:
                return Refusal(_how(), facts, story)
            if broken:
                return Refusal("sold-out-not-said", {"said": broken[0]}, story)
            if run.report.undersold:
                return Refusal("gave-up", facts, story)
            statements.clear()
    except AssertionError as error:
        cause = error.__cause__
        if isinstance(cause, IntegrityError):
            return Refusal("check-as-flow", {"error": str(cause).splitlines()[0]})
        if isinstance(cause, OperationalError):
            return Refusal("conflict-not-retried", {"error": str(cause).splitlines()[0]})
        raise
    return None


def _how() -> str:
    """The code for a violation, by what was sent."""
    for buyer, text, rows in statements:
        if text.startswith("UPDATE product") and rows == 0:
            own = [other for name, other, _ in statements if name == buyer]
            if any(other.startswith("INSERT INTO purchase") for other in own[own.index(text) :]):
                return "row-count-ignored"
    if any("FOR UPDATE" in text for _, text, _ in statements):
        return "read-before-lock"
    return "last-writer-wins"
