"""Lessons 6, 11 and 12: a transaction inside a lock, and purchases without one."""

from types import ModuleType

from django.db import IntegrityError, OperationalError

from shop.ops.redis import locks_client
from shop.sale.locked import redis_lock
from shop.sale.purchase import Attempt
from workshop.checks.purchases import (
    MINE,
    PRODUCT,
    alone,
    broken,
    every_run,
    install,
    killed,
    open_sale,
    outcome_of,
    second_of_one,
    statements,
    told,
)
from workshop.refusal import Refusal


def inside_out(module: ModuleType) -> Refusal | None:
    """The first fault in how lock and transaction are nested, or None."""
    install(module)
    return _under_a_lock() or killed() or _nothing_to_sell() or _let_in() or second_of_one()


def _under_a_lock() -> Refusal | None:
    """The first buyer gets the unit, holds the lock meanwhile, and leaves none behind."""
    free: list[bool] = []
    found = alone(lambda: free.append(_is_free()))
    if found is not None:
        return Refusal("waits-for-itself") if found.facts.get("outcome") == "busy" else found
    if any(free):
        return Refusal("not-held")
    return None if _is_free() else Refusal("never-released")


def _nothing_to_sell() -> Refusal | None:
    """A buyer who finds nothing leaves no lock behind."""
    open_sale(0)
    outcome_of("A")
    return None if _is_free() else Refusal("released-after-a-sale-only")


def _is_free() -> bool:
    lease = redis_lock(Attempt(product=PRODUCT, buyer="B", lock=MINE)).try_acquire()
    if lease is not None:
        lease.release()
    return lease is not None


def _let_in() -> Refusal | None:
    """No sequence of two buyers' moves sells a unit twice."""
    runs = list(every_run())
    bad = [run for run in runs if run.violates]
    if not bad:
        return None
    return Refusal("free-before-commit", {"bad": len(bad), "runs": len(runs)}, (told(bad[0]),))


def no_lock(module: ModuleType) -> Refusal | None:
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
