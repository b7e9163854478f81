"""Lesson 6: the lock outside, the transaction inside."""

from types import ModuleType

from shop.sale.locked import redis_lock
from shop.sale.purchase import Attempt
from workshop.checks.purchases import (
    MINE,
    PRODUCT,
    alone,
    every_run,
    install,
    killed,
    open_sale,
    outcome_of,
    second_of_one,
    told,
)
from workshop.refusal import Refusal


def refusal(module: ModuleType) -> Refusal | None:
    """The first fault in how lock and transaction are nested, or None."""
    install(module)
    return _alone() or killed() or _nothing_to_sell() or _schedules() or second_of_one()


def _alone() -> Refusal | None:
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


def _schedules() -> Refusal | None:
    """No sequence of two buyers' moves sells a unit twice."""
    runs = list(every_run())
    bad = [run for run in runs if run.violates]
    if not bad:
        return None
    return Refusal("free-before-commit", {"bad": len(bad), "runs": len(runs)}, (told(bad[0]),))
