"""Lesson 6: the lock outside, the transaction inside."""

from __future__ import annotations

from types import ModuleType

from shop.demo.schedules import Run, Scheduler
from shop.sale.locked import redis_lock
from shop.sale.purchase import Attempt
from workshop.checks.purchases import (
    MINE,
    PRODUCT,
    books,
    buy,
    install,
    killed_between_writes,
    open_sale,
    outcome_of,
)
from workshop.refusal import Refusal


def refusal(module: ModuleType) -> Refusal | None:
    """What is wrong with how lock and transaction are nested; None if nothing is."""
    install(module)
    return _alone() or _killed() or _sold_out() or _schedules()


def _alone() -> Refusal | None:
    sale = open_sale(1)
    outcome = outcome_of(lambda: buy("A"))
    return None if books(sale) == (1, 0) else Refusal("never-sells", {"outcome": outcome})


def _killed() -> Refusal | None:
    """Killed between the decrement and the order: nothing of it may stay."""
    sale = open_sale(1)
    killed_between_writes("A")
    orders, left = books(sale)
    if (orders, left) == (0, 1):
        return None
    return Refusal("no-transaction", {"orders": orders, "left": left})


def _sold_out() -> Refusal | None:
    """A buyer who finds nothing leaves no lock behind."""
    open_sale(0)
    outcome_of(lambda: buy("A"))
    lease = redis_lock(Attempt(product=PRODUCT, buyer="B", lock=MINE)).try_acquire()
    if lease is None:
        return Refusal("released-on-commit-only")
    lease.release()
    return None


def _schedules() -> Refusal | None:
    """Every interleaving of two buyers, for one unit and for two."""
    locks = open_sale(1)  # and with it no lock of the purchase before
    assert locks
    runs: list[Run] = []
    with Scheduler(MINE) as scheduler:
        for units in (1, 2):
            runs += scheduler.every_run(units)
    bad = [run for run in runs if run.violates]
    if not bad:
        return None
    facts = {"bad": len(bad), "runs": len(runs)}
    return Refusal("free-before-commit", facts, (str(bad[0]),))
