"""Lesson 11: the database alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from django.db import IntegrityError, OperationalError

from shop.demo.schedules import Run, Scheduler
from shop.ops.redis import locks_client
from shop.sale.points import installed
from workshop.checks.purchases import (
    MINE,
    books,
    buy,
    install,
    killed_between_writes,
    open_sale,
    outcome_of,
    statements,
)
from workshop.refusal import Refusal


def refusal(module: ModuleType) -> Refusal | None:
    """What is wrong with how the database is asked; None if nothing is."""
    install(module)
    return _alone() or _killed() or _schedules()


def _alone() -> Refusal | None:
    sale = open_sale(1)
    locked: list[int] = []

    def look(name: str, facts: Mapping[str, object]) -> None:
        if name == "after_read":
            locked.append(int(locks_client().dbsize()))

    with installed(look):
        outcome = outcome_of(lambda: buy("A"))
    if books(sale) != (1, 0):
        return Refusal("never-sells", {"outcome": outcome})
    return Refusal("uses-a-lock", {"keys": locked[0]}) if any(locked) else None


def _killed() -> Refusal | None:
    sale = open_sale(1)
    killed_between_writes("A")
    orders, left = books(sale)
    if (orders, left) == (0, 1):
        return None
    return Refusal("not-in-a-transaction", {"orders": orders, "left": left})


def _schedules() -> Refusal | None:
    """Every interleaving of two buyers, for one unit and for two."""
    open_sale(1)
    runs: list[Run] = []
    with statements() as sent:
        try:
            with Scheduler(MINE) as scheduler:
                for units in (1, 2):
                    for run in scheduler.every_run(units):
                        runs.append(run)
                        if run.violates:
                            return Refusal(_how(sent), {"schedule": run.schedule}, (str(run),))
                        if run.report.undersold:
                            return Refusal("gave-up", {"schedule": run.schedule}, (str(run),))
                        sent.clear()
        except AssertionError as error:
            cause = error.__cause__
            if isinstance(cause, IntegrityError):
                return Refusal("check-as-flow", {"error": str(cause).splitlines()[0]})
            if isinstance(cause, OperationalError):
                return Refusal("conflict-not-retried", {"error": str(cause).splitlines()[0]})
            raise
    return None


def _how(sent: list[tuple[str, str, int]]) -> str:
    """The code for a violation, by what was sent."""
    sent = [each for each in sent if each[0] in ("A", "B")]
    for thread, text, rows in sent:
        if text.startswith("UPDATE product") and rows == 0:
            mine = [other for name, other, _ in sent if name == thread]
            if any(other.startswith("INSERT INTO purchase") for other in mine[mine.index(text) :]):
                return "row-count-ignored"
    if any("FOR UPDATE" in text for _, text, _ in sent):
        return "read-before-lock"
    return "last-writer-wins"
