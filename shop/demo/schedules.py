"""Two buyers driven through one schedule, in the manner of PostgreSQL's isolation tester.

A schedule is who moves in each turn: `AABABB`. A purchase is three moves: the read; the write, the
order and all else up to the COMMIT, before which the buyer stops; the commit, and what follows it.
The last one ends only when the transaction and the lock have: whoever moves next finds it done.

A buyer who waits in the database or for the lock counts as blocked, and the turn is the other's.
The database is asked whether it is so (pg_blocking_pids). A lock is asked for without a wait: a
buyer who is refused asks again after each move of the other. A blocked buyer goes on as soon as it
can, as it would in the rush.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import combinations
from types import TracebackType
from typing import NamedTuple, Self

from django.db import connection, connections
from django.test import override_settings

from shop.demo.interleaving import TIMEOUT, Interleaving, is_passed
from shop.errors import Busy, ShopError
from shop.sale.checkout import check_out
from shop.sale.points import installed, point
from shop.sale.purchase import Attempt
from shop.sale.reports import SaleReport, sale_report
from shop.sale.stock import restock

#: What the buyers of a schedule buy.
PRODUCT = "apple"
MOVES = 3
STOPS = ("after_read", "at_commit")
LOGGED = (*STOPS, "unlocked_before_commit")
#: Seconds after which a buyer who moves is looked at: has it reached a stop, or is it blocked?
GLANCE = 0.003


class Run(NamedTuple):
    """The outcome of one schedule. `log`: who reached what, in the order in which it happened."""

    schedule: str
    log: list[str]
    report: SaleReport

    @property
    def violates(self) -> bool:
        return bool(self.report.oversold or self.report.lost_updates)

    def __str__(self) -> str:
        sold = f"{self.report.orders} of {self.report.initial_stock} sold"
        return f"{self.schedule}: {', '.join(self.log)}; {sold}, {self.report.stock_left} left"


#: Every order in which two buyers can make their moves.
SCHEDULES = [
    "".join("A" if turn in hers else "B" for turn in range(2 * MOVES))
    for hers in combinations(range(2 * MOVES), MOVES)
]


class Buyer:
    """A buyer in a thread and on a connection of its own, for one schedule after the other."""

    def __init__(self, name: str, run: Interleaving) -> None:
        self.name = name
        self.attempt = Attempt(PRODUCT, name)
        self.blocked = False
        self.backend = 0
        self._interleaving = run
        self.actor = run.enter(name, self._buy_again_and_again).runs_to("begin")

    def waits_in_the_database(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_blocking_pids(%s) <> '{}'", [self.backend])
            return bool(cursor.fetchone()[0])

    def _buy_again_and_again(self) -> None:
        fast_commits()
        gate_the_commit()
        self.backend = connection.connection.info.backend_pid
        while not self._interleaving.over.is_set():
            point("begin")
            self._buy()

    def _buy(self) -> None:
        while not self._interleaving.over.is_set():
            try:
                check_out(self.attempt)
            except Busy:
                point("refused")
            except ShopError:
                return
            else:
                return


class Scheduler:
    """Runs schedules of one strategy."""

    def __init__(self, lock: str) -> None:
        self.lock = lock
        self._interleaving = Interleaving()
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        if "acquired" in self._points_of_a_purchase():
            self._undo.enter_context(override_settings(SHOP_LOCK_WAIT=0.0))
        self._undo.enter_context(self._interleaving)
        self._buyers = {name: Buyer(name, self._interleaving) for name in "AB"}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.__exit__(kind, error, trace)

    def every_run(self, units: int) -> Iterator[Run]:
        """What comes of every schedule, each in a new sale of so many units."""
        for schedule in SCHEDULES:
            yield self.run(schedule, units)

    def run(self, schedule: str, units: int) -> Run:
        """What comes of one schedule, in a new sale of so many units."""
        sale = restock(product=PRODUCT, amount=units, lock=self.lock)
        log: list[str] = []
        for buyer in self._buyers.values():
            buyer.attempt = Attempt(PRODUCT, buyer.name, self.lock)
        for name in schedule:
            self._turn(name, log)
        # Whoever was blocked, or began anew after a conflict, has moves left.
        deadline = time.monotonic() + TIMEOUT
        while left := [name for name in self._buyers if f"{name} end" not in log]:
            assert time.monotonic() < deadline, f"{left} do not get on: {schedule}, {log}"
            for name in left:
                self._turn(name, log)
        return Run(schedule, log, sale_report(sale.pk, buyers=2))

    def _points_of_a_purchase(self) -> list[str]:
        """The points that a buyer passes when alone."""
        fast_commits()
        restock(product=PRODUCT, amount=1)
        reached: list[str] = []

        def note(place: str, facts: Mapping[str, object]) -> None:
            if not is_passed(place):
                reached.append(place)

        with installed(note):
            check_out(Attempt(PRODUCT, "alone", self.lock))
        return reached

    def _turn(self, name: str, log: list[str]) -> None:
        buyer = self._buyers[name]
        if not buyer.blocked and f"{name} end" not in log:
            buyer.actor.starts()
            if not self._settles(buyer, log):
                log.append(f"{name} waits")
        for other in self._buyers.values():
            if other.blocked and other is not buyer:
                self._go_on(other, log)

    def _go_on(self, buyer: Buyer, log: list[str]) -> None:
        if buyer.actor.place == "refused":
            buyer.actor.starts()
        elif buyer.waits_in_the_database():
            return
        self._settles(buyer, log)

    def _settles(self, buyer: Buyer, log: list[str]) -> bool:
        """Let a buyer who moves come to the next stop. False: it is blocked on the way there."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            if buyer.actor.stops_within(GLANCE):
                place = buyer.actor.place
                if place is None:
                    raise AssertionError(f"{buyer.name} broke off: {log}") from buyer.actor.error
                buyer.blocked = place == "refused"
                if buyer.blocked:
                    return False
                if place == "begin":
                    log.append(f"{buyer.name} end")
                    return True
                if place in LOGGED:
                    log.append(f"{buyer.name} {place}")
                if place in STOPS:
                    return True
                buyer.actor.starts()
            elif buyer.waits_in_the_database():
                buyer.blocked = True
                return False
            assert time.monotonic() < deadline, f"{buyer.name} is stuck: {log}"


def fast_commits() -> None:
    """Do not wait for the disk; order and visibility stay the same."""
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")


def gate_the_commit() -> None:
    """Make the COMMIT a point, so that it is sent when the test says so."""
    wrapper = connections["default"]
    commit = wrapper.commit

    def gated_commit() -> None:
        point("at_commit")
        commit()

    setattr(wrapper, "commit", gated_commit)  # noqa: B010
