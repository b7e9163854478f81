"""Two buyers driven through one schedule, in the manner of PostgreSQL's isolation tester.

A schedule names the buyer that moves in each turn: `AABABB`. A purchase has three moves:

1. the read of the stock
2. the write of the stock and of the order, up to the COMMIT, which is not sent yet
3. the COMMIT and everything after it, until the transaction has ended and the lock is released

The turns of a blocked buyer are passed over. A buyer is blocked while it waits in the database,
which reports the wait (PostgreSQL by pg_blocking_pids), and while the strategy's lock is taken. It
does not wait for that lock (SHOP_LOCK_WAIT is 0): it is refused, and tries again after each move of
the other buyer. A blocked buyer continues as soon as it can, as in a rush.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Self

from django.db import DatabaseError, OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test import override_settings

from shop.errors import LockBusy, ShopError
from shop.ops.database import code_of, is_connection_lost
from shop.sale.checkout import check_out
from shop.sale.opening import restock
from shop.sale.points import point, use_probe
from shop.sale.purchase import Attempt
from shop.sale.reports import SaleReport, sale_report
from shop.schedules.interleaving import TIMEOUT_SECONDS
from testing.actor import Actor
from testing.driver import Driver
from testing.orders import list_orders

#: The product that the buyers of a schedule buy.
PRODUCT = "apple"
MOVES_PER_BUYER = 3
#: Points at which a buyer stops; see shop/sale/points.py. `begin`, `at_commit` and `refused` are
#: points of this module.
STOPS = ("begin", "after_read", "at_commit", "refused")
#: The value of `waits_at` while a buyer that was refused tries to acquire the lock again.
TRYING_AGAIN = "tries the lock again"
#: SQLSTATE of a transaction that idle_in_transaction_session_timeout ended.
IDLE_IN_TRANSACTION_TIMEOUT_CODE = "25P03"


class TimedOut(RuntimeError):
    """The database ended a transaction of the schedule, so the schedule has no outcome."""


class ScheduleRun(NamedTuple):
    """The outcome of one schedule. `log` lists the stops of both buyers, in order."""

    schedule: str
    log: list[str]
    report: SaleReport

    @property
    def is_wrong(self) -> bool:
        """True if more units were sold than there were, or if a decrement was lost."""
        return bool(self.report.oversold or self.report.lost_updates)


#: All 20 schedules of two buyers. An order of list_orders() is an order of turns, not a purchase.
SCHEDULES = sorted(list_orders([MOVES_PER_BUYER, MOVES_PER_BUYER], limit=20))


class Buyers(Driver):
    """Two buyers, A and B, each in its own thread. A schedule is the order of their turns."""

    def __init__(self, lock: str) -> None:
        calls = [partial(self._buy, Attempt(PRODUCT, name, lock)) for name in "AB"]
        # No steps are given to the Driver (`at`): the shop's points call at_point() instead.
        super().__init__(calls, at=(), timeout=TIMEOUT_SECONDS, using="default")
        self.log: list[str] = []
        self.has_timed_out = False

    def __enter__(self) -> Self:
        connection_created.connect(self._prepare_connection)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        connection_created.disconnect(self._prepare_connection)

    def _prepare_connection(self, connection: BaseDatabaseWrapper, **_: object) -> None:
        """Record which process or thread of the database serves a buyer's new connection.

        A purchase may close its connection and open another one.
        """
        actor = self.current_actor()
        if actor is None:
            return
        if connection.vendor == "mysql":
            actor.backends = {connection.connection.thread_id()}
        elif connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                # Without a wait for the disk, a schedule is faster and has the same outcome.
                cursor.execute("SET synchronous_commit = off")
            actor.backends = {connection.connection.info.backend_pid}

    def _buy(self, attempt: Attempt) -> None:
        """Try to buy a unit. After a refusal by a lock, stop at `refused`, then try again."""
        connection.ensure_connection()  # now, and not during the buyer's first turn
        report_at_commit(self._record_timeouts)
        with connection.execute_wrapper(self._execute_recording_timeouts):
            point.send("begin")
            while True:
                try:
                    check_out(attempt)
                    return
                except LockBusy:
                    point.send("refused")
                except ShopError:
                    return  # the buyer gets no unit, which the report of the sale shows

    def _execute_recording_timeouts(self, execute: Callable[..., Any], *statement: Any) -> Any:
        """Execute a statement. If it fails because of a timeout, record that."""
        with self._record_timeouts():
            return execute(*statement)

    @contextmanager
    def _record_timeouts(self) -> Iterator[None]:
        """Set `has_timed_out` if a statement fails because its transaction was idle for too long.

        The error is recorded here, because the strategy may catch it and try again. A lost
        connection counts as a timeout, too: PostgreSQL closes the connection, and the error message
        may not arrive.
        """
        try:
            yield
        except OperationalError as error:
            self.has_timed_out |= is_connection_lost(error)
            raise
        except DatabaseError as error:  # psycopg's InternalError, which is not an OperationalError
            self.has_timed_out |= code_of(error) == IDLE_IN_TRANSACTION_TIMEOUT_CODE
            raise

    def at_point(self, name: str, facts: Mapping[str, object]) -> None:
        """Stop this thread's buyer if `name` is in STOPS. Log the point `unlocked_before_commit`.

        Each point of the purchase calls this, with its facts.
        """
        actor = self.current_actor()
        if actor is not None and name == "unlocked_before_commit":
            self.log.append(f"{actor.name} {name}")
        if name in STOPS:
            self.stop(name)

    def wake(self, actor: Actor) -> bool:
        """Let a blocked buyer continue if it can. Return whether it has reached its next stop.

        A buyer that was refused because the lock was taken tries to acquire the lock again.
        """
        if actor.waits_at == "refused":
            actor.waits_at = TRYING_AGAIN
            actor.go()
        return super().wake(actor)

    def settle(self, actor: Actor, blocked_after: float) -> bool:
        """Wait until a buyer stops or is blocked. Return whether it has stopped.

        The database reports which buyer is blocked, so the time `blocked_after` is not used. A
        buyer at the point `refused` counts as blocked, too: another buyer has the lock.
        """
        was_blocked = actor.is_blocked
        has_stopped = super().settle(actor, TIMEOUT_SECONDS)
        if actor.waits_at == "refused":
            actor.is_blocked = True
            has_stopped = False
        if not has_stopped and not was_blocked:
            self.log.append(f"{actor.name} waits")
        elif has_stopped and actor.waits_at != "begin":
            self.log.append(f"{actor.name} {actor.waits_at or 'end'}")
        return has_stopped


def run_all_schedules(lock: str, units: int) -> Iterator[ScheduleRun]:
    """Yield the outcome of every schedule under this strategy, each in a new sale."""
    return (run_schedule(lock, schedule, units) for schedule in SCHEDULES)


def run_schedule(lock: str, schedule: str, units: int) -> ScheduleRun:
    """Run one schedule, such as AABABB, in a new sale of this many units. Return its outcome.

    Each letter is a turn, in which that buyer continues to its next stop. Raises TimedOut if the
    database ended a transaction, for example because it was idle for too long. Raises
    AssertionError if a buyer fails with an error that is not a refusal.
    """
    sale = restock(product=PRODUCT, amount=units, lock=lock)
    buyers = Buyers(lock)
    with override_settings(SHOP_LOCK_WAIT=0.0), use_probe(buyers.at_point), buyers:
        completed_run = buyers.run(schedule)
    if buyers.has_timed_out:
        raise TimedOut(f"{schedule}: the database ended a transaction: {buyers.log}")
    for name, error in zip("AB", completed_run.errors, strict=True):
        if error is not None:
            raise AssertionError(f"{name} failed: {buyers.log}") from error
    return ScheduleRun(schedule, buyers.log, sale_report(sale.pk, buyers=2))


def report_at_commit(
    make_commit_context: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Make this thread's connection report the point `at_commit` before each COMMIT.

    A test that stops the thread at this point decides when the COMMIT is sent.

    make_commit_context  returns a context manager that surrounds the COMMIT
    """
    commit = connection.commit

    def report_and_commit() -> None:
        point.send("at_commit")
        with make_commit_context():
            commit()

    # This need not be undone, because no other thread uses this connection. mypy would refuse an
    # assignment to the method.
    setattr(connection, "commit", report_and_commit)  # noqa: B010
