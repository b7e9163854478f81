"""Two buyers driven through one schedule, in the manner of PostgreSQL's isolation tester.

A schedule is who moves in each turn: `AABABB`. A purchase is three moves: the read; the write, the
order and all else up to the COMMIT, before which the buyer stops; the commit, and what follows it.
The last one ends only when the transaction and the lock have: whoever moves next finds it done.

A buyer who waits in the database or for the lock counts as blocked, and the turn is the other's.
The database is asked whether it is so (pg_blocking_pids). A lock is asked for without a wait: a
buyer who is refused asks again after each move of the other. A blocked buyer goes on as soon as it
can, as it would in the rush.
"""

import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from django.db import connection
from django.test import override_settings

from shop.demo.interleaving import TIMEOUT
from shop.errors import Busy, ShopError
from shop.sale.checkout import check_out
from shop.sale.opening import restock
from shop.sale.points import installed, point
from shop.sale.purchase import Attempt
from shop.sale.reports import SaleReport, sale_report
from testing.actor import Actor
from testing.driver import Driver
from testing.orders import orders

#: What the buyers of a schedule buy.
PRODUCT = "apple"
MOVES = 3
STOPS = ("begin", "after_read", "at_commit", "refused")


class Run(NamedTuple):
    """The outcome of one schedule. `log`: who reached what, in the order in which it happened."""

    schedule: str
    log: list[str]
    report: SaleReport

    @property
    def violates(self) -> bool:
        return bool(self.report.oversold or self.report.lost_updates)


#: Every order in which two buyers can make their moves.
SCHEDULES = sorted(orders([MOVES, MOVES], limit=20))


class Buyers(Driver):
    """A and B for one schedule, each in a thread and on a connection of its own."""

    def __init__(self, lock: str) -> None:
        calls = [partial(self._buy, Attempt(PRODUCT, name, lock)) for name in "AB"]
        super().__init__(calls, at=(), timeout=TIMEOUT, using="default")
        self.log: list[str] = []

    def _buy(self, attempt: Attempt) -> None:
        with connection.cursor() as cursor:  # the disk is not waited for: the order is the same
            cursor.execute("SET synchronous_commit = off")
        gate_the_commit()
        self._connected(connection.connection.info.backend_pid)
        point("begin")
        while True:
            try:
                check_out(attempt)
                return
            except Busy:
                point("refused")
            except ShopError:
                return

    def at_point(self, place: str, facts: Mapping[str, object]) -> None:
        """The log's entries between stops; and where a buyer stops."""
        actor = self._of_thread.get(threading.current_thread())
        if actor is not None and place == "unlocked_before_commit":
            self.log.append(f"{actor.name} {place}")
        if place in STOPS:
            self._stop(place)

    def _wake(self, actor: Actor) -> bool:
        if actor.waits_at == "refused":
            actor.waits_at = "asks again"
            actor.go()
        return super()._wake(actor)

    def _settle(self, actor: Actor, quiet: float) -> bool:
        """A buyer who moves stops, or is blocked: nobody has to guess it from its silence."""
        was_blocked = actor.is_blocked
        has_stopped = super()._settle(actor, TIMEOUT)
        if actor.waits_at == "refused":
            actor.is_blocked, has_stopped = True, False
        if not has_stopped:
            self.log += [] if was_blocked else [f"{actor.name} waits"]
        elif actor.waits_at != "begin":
            self.log.append(f"{actor.name} {actor.waits_at or 'end'}")
        return has_stopped


def every_run(lock: str, units: int) -> Iterator[Run]:
    """The outcome of every schedule under this lock, each in a new sale of this many units."""
    return (run_schedule(lock, schedule, units) for schedule in SCHEDULES)


def run_schedule(lock: str, schedule: str, units: int) -> Run:
    """The outcome of one schedule, in a new sale of this many units."""
    sale = restock(product=PRODUCT, amount=units, lock=lock)
    buyers = Buyers(lock)
    with override_settings(SHOP_LOCK_WAIT=0.0), installed(buyers.at_point), buyers:
        done = buyers.run(schedule)
    for name, error in zip("AB", done.errors, strict=True):
        if error is not None:
            raise AssertionError(f"{name} broke off: {buyers.log}") from error
    return Run(schedule, buyers.log, sale_report(sale.pk, buyers=2))


def gate_the_commit() -> None:
    """Make the COMMIT a point, so that it is sent when the test says so."""
    commit = connection.commit

    def gated_commit() -> None:
        point("at_commit")
        commit()

    setattr(connection, "commit", gated_commit)  # noqa: B010
