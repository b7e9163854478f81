"""Two buyers whose purchases are interleaved in a given order, as in PostgreSQL's isolation tester.

The order is called a schedule. `AABABB` means: A makes two moves, then B one, and so on. A purchase
has three moves:

1. the read of the stock
2. the write of the stock and of the order, up to the COMMIT, which is not sent yet
3. the COMMIT and everything after it, until the transaction has ended and the lock is released

The turns of a blocked buyer are skipped. A buyer is blocked while it waits in the database, which
reports the wait (PostgreSQL by pg_blocking_pids), and while the other buyer has the strategy's
lock. Buyers do not wait for that lock (SHOP_LOCK_WAIT is 0): a buyer is refused, and tries again
after each move of the other buyer. A blocked buyer continues as soon as it can.
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
from shop.ops.database import get_error_code, is_connection_lost
from shop.sale.checkout import check_out
from shop.sale.opening import restock
from shop.sale.points import point_reached, use_probe
from shop.sale.purchase import Attempt
from shop.sale.reports import SaleReport, sale_report
from shop.schedules.interleaving import TIMEOUT_SECONDS
from testing.actor import Actor
from testing.driver import Driver
from testing.orders import list_orders

#: The product that the buyers of a schedule buy.
PRODUCT = "apple"
MOVES_PER_BUYER = 3
#: The points (named places in the code of a purchase) at which a buyer stops. shop/sale/points.py
#: explains points. `begin`, `at_commit` and `refused` are points of this module.
STOPS = ("begin", "after_read", "at_commit", "refused")
#: The value of `waits_at` while a buyer that was refused tries to acquire the lock again.
TRYING_AGAIN = "tries the lock again"
#: SQLSTATE of a transaction that idle_in_transaction_session_timeout ended.
IDLE_IN_TRANSACTION_TIMEOUT_CODE = "25P03"


class TimedOut(RuntimeError):
    """The database ended a transaction after a timeout, so the schedule has no outcome."""


class ScheduleRun(NamedTuple):
    """The outcome of one schedule, an order of two buyers' moves such as AABABB.

    log     the stops of both buyers, in order
    report  the figures of the sale in which they bought
    """

    schedule: str
    log: list[str]
    report: SaleReport

    @property
    def is_wrong(self) -> bool:
        """True if more units were sold than there were, or if a decrement was lost."""
        return bool(self.report.oversold or self.report.lost_updates)


#: All 20 orders in which two buyers can make three moves each, such as AABABB.
SCHEDULES = sorted(list_orders([MOVES_PER_BUYER, MOVES_PER_BUYER], limit=20))


class Buyers(Driver):
    """Two buyers, A and B, each in its own thread, that run() moves in the order of a schedule.

    The base class calls a thread and its state an actor.
    """

    def __init__(self, lock: str) -> None:
        """Create the threads of both buyers. `lock` is the name of their strategy."""
        purchases = [partial(self._buy, Attempt(PRODUCT, name, lock)) for name in "AB"]
        # handle_point() stops the threads. So `at`, the stops of the base class, is empty.
        super().__init__(purchases, at=(), timeout=TIMEOUT_SECONDS, using="default")
        self.log: list[str] = []
        self.has_timed_out = False

    def __enter__(self) -> Self:
        connection_created.connect(self._prepare_connection)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        connection_created.disconnect(self._prepare_connection)

    def _prepare_connection(self, connection: BaseDatabaseWrapper, **_: object) -> None:
        """Store the id of a new connection in the actor of its buyer.

        The id is that of PostgreSQL's process or MySQL's thread for this connection. The base class
        needs it to find out which buyer is blocked. A purchase may close its connection and open
        another one.
        """
        actor = self.current_actor()
        if actor is None:
            return
        if connection.vendor == "mysql":
            actor.connection_ids = {connection.connection.thread_id()}
        elif connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                # Without a wait for the disk, a schedule is faster and has the same outcome.
                cursor.execute("SET synchronous_commit = off")
            actor.connection_ids = {connection.connection.info.backend_pid}

    def _buy(self, attempt: Attempt) -> None:
        """Try to buy a unit, again and again as long as the other buyer has the lock.

        Stop at the point `refused` before each further try. A point is a place at which
        handle_point() stops the thread until the buyer's next turn.
        """
        connection.ensure_connection()  # connect now, and not during the buyer's first turn
        signal_before_commit(self._record_statement_timeouts)
        with connection.execute_wrapper(self._execute_recording_timeouts):
            point_reached.send("begin")
            while True:
                try:
                    check_out(attempt)
                    return
                except LockBusy:
                    point_reached.send("refused")
                except ShopError:
                    return  # the buyer gets no unit, which the report of the sale shows

    def _execute_recording_timeouts(self, execute: Callable[..., Any], *statement: Any) -> Any:
        """Execute a statement with Django's `execute`. If it fails by a timeout, record that."""
        with self._record_statement_timeouts():
            return execute(*statement)

    @contextmanager
    def _record_statement_timeouts(self) -> Iterator[None]:
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
            self.has_timed_out |= get_error_code(error) == IDLE_IN_TRANSACTION_TIMEOUT_CODE
            raise

    def handle_point(self, name: str, fields: Mapping[str, object]) -> None:
        """Stop this thread's buyer if `name` is in STOPS. Log the point `unlocked_before_commit`.

        This is called at each point of a purchase. A point is a named place in its code.

        name    the name of the point
        fields  what the purchase reports there
        """
        actor = self.current_actor()
        if actor is not None and name == "unlocked_before_commit":
            self.log.append(f"{actor.name} {name}")
        if name in STOPS:
            self.stop(name)

    def wake(self, actor: Actor) -> bool:
        """Let a blocked buyer continue if it can. Return whether it has reached its next stop.

        A buyer that was refused, because the other buyer had the lock, tries to acquire it again.

        actor  the thread of the buyer, and its state
        """
        if actor.waits_at == "refused":
            actor.waits_at = TRYING_AGAIN
            actor.go()
        return super().wake(actor)

    def settle(self, actor: Actor, blocked_after: float) -> bool:
        """Wait until a moving buyer stops or is blocked. Return whether it has stopped.

        A buyer at the point `refused` counts as blocked, because the other buyer has the lock.

        actor          the thread of the buyer, and its state
        blocked_after  not used: a time limit of the base class after which a buyer counts as
                       blocked. Here the database reports whether a buyer is blocked
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
    """Yield the outcome of each of the 20 schedules under this strategy, each in a new sale.

    lock  the name of the strategy
    """
    return (run_schedule(lock, schedule, units) for schedule in SCHEDULES)


def run_schedule(lock: str, schedule: str, units: int) -> ScheduleRun:
    """Move two buyers in the order of a schedule, in a new sale. Return the outcome.

    lock      the name of the strategy
    schedule  such as AABABB: with each letter that buyer continues to its next stop
    units     the stock of the sale

    Raises TimedOut if the database ended a transaction, for example because it was idle for too
    long. Raises AssertionError if a buyer fails with an error that is not a refusal.
    """
    sale = restock(product=PRODUCT, amount=units, lock=lock)
    buyers = Buyers(lock)
    with override_settings(SHOP_LOCK_WAIT=0.0), use_probe(buyers.handle_point), buyers:
        completed_run = buyers.run(schedule)
    if buyers.has_timed_out:
        raise TimedOut(f"{schedule}: the database ended a transaction: {buyers.log}")
    for name, error in zip("AB", completed_run.errors, strict=True):
        if error is not None:
            raise AssertionError(f"{name} failed: {buyers.log}") from error
    return ScheduleRun(schedule, buyers.log, sale_report(sale.pk, buyers=2))


def signal_before_commit(
    make_commit_context: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Make this thread's connection send the signal `point_reached` before each COMMIT.

    The name of the point is `at_commit`. A test can stop the thread there, and so decide when the
    COMMIT is sent.

    make_commit_context  returns a context manager that surrounds the COMMIT
    """
    commit = connection.commit

    def send_point_and_commit() -> None:
        point_reached.send("at_commit")
        with make_commit_context():
            commit()

    # The method is never restored, because no other thread uses this connection. mypy would refuse
    # an assignment to the method.
    setattr(connection, "commit", send_point_and_commit)  # noqa: B010
