"""Purchases with the code of the participant's file, which a check runs, pauses or kills.

The last part of this module has the checks that lessons.toml names: `inside_out` of lesson 6,
`no_lock` of lesson 11 and `any_purchase` of lesson 12.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import psycopg
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InternalError,
    OperationalError,
    ProgrammingError,
    connection,
)
from django.db.models import QuerySet
from django.test import override_settings

from demo.own_strategies import BrokenFile, make_strategy
from shop.errors import ShopError
from shop.models import Product, PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale import opening
from shop.sale.checkout import check_out
from shop.sale.locked import redis_lock
from shop.sale.points import point_reached, use_probe
from shop.sale.purchase import Attempt, Receipt
from shop.sale.reports import sale_report
from shop.schedules import two_buyers
from shop.schedules.interleaving import Interleaving, StoppingActor
from shop.strategies import STRATEGIES
from testing.actor import ENDED
from workshop.checks.watch import restart_step_timer
from workshop.refusal import Refusal


class SentStatement(NamedTuple):
    """A statement of a purchase.

    text       its text, without quotation marks
    row_count  the number of rows that it returned or changed
    """

    buyer: str
    text: str
    row_count: int


#: The strategy that the participant's file becomes.
MINE = "mine"
#: The messages of BrokenFile with which purchases of the current sale failed.
purchase_errors: list[str] = []
#: The database's errors for wrong statements in the current sale. The shop mistakes some of them
#: for a lost connection, and answers `unavailable`.
statement_errors: list[DatabaseError] = []
#: The statements of the current sale. The check of all schedules clears them after each schedule.
statements: list[SentStatement] = []
#: The buyers of the current sale that called select_for_update().
row_locks_requested: list[str] = []
#: The attribute `buyer` is the buyer whose purchase runs in this thread.
_this_thread = threading.local()
#: Points of a schedule, in the words of the lessons. A move ends at its point, so the move that
#: writes is the one up to `at_commit`.
POINTS_IN_WORDS = {
    "after_read": "reads",
    "at_commit": "writes",
    "unlocked_before_commit": "gives its lock back",
}
#: Points of a paused purchase, in the words of the lessons: where the buyer is during the pause.
PAUSES_IN_WORDS = {
    "acquired": "has the lock",
    "paused": "is paused",
    "after_read": "reads",
    "before_commit": "writes",
    "at_commit": "is about to commit",
    "after_commit": "commits",
}
PRODUCT = "apple"
#: An initial stock that the buyers of a check cannot sell out.
AMPLE_STOCK = 10
#: An initial stock from which a wrong purchase can take several units.
SEVERAL_UNITS = 5
#: Outcomes after which a buyer gives up without a unit.
FINAL_OUTCOMES = ("sold_out", "error")
#: A product that no buyer of a check buys.
OTHER_PRODUCT = "pear"
#: The stock of OTHER_PRODUCT.
OTHER_STOCK = 5
#: PostgreSQL's SQLSTATE for a deadlock.
DEADLOCK_SQLSTATE = "40P01"
#: The story of a purchase whose COMMIT has no answer.
COMMIT_WITHOUT_AN_ANSWER = ("A writes, A commits, the answer of the COMMIT gets lost",)
#: Seconds between two checks whether a resumed buyer is blocked.
BLOCKED_CHECK_SECONDS = 0.01
#: Selects whether any connection to this database waits for a lock of another one.
BLOCKED_BUYER_QUERY = """
    SELECT coalesce(bool_or(pg_blocking_pids(pid) <> '{}'), false) FROM pg_stat_activity
    WHERE datname = current_database()
"""


class Killed(BaseException):
    """Ends a purchase at the statement before which its process would have been killed."""


def install_as_mine(module: ModuleType) -> None:
    """Make the participant's file the strategy `mine`, and record what its purchases do.

    Errors, SQL statements and calls of select_for_update() are recorded in lists of this module.
    """
    strategy = make_strategy(MINE, Path(str(module.__file__)))
    _record_row_locks()

    def buy_and_record(attempt: Attempt) -> Receipt:
        def record_statement(
            execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
        ) -> Any:
            returned = execute(sql, params, many, context)
            text = " ".join(str(sql).split()).replace('"', "")
            statements.append(SentStatement(attempt.buyer, text, context["cursor"].rowcount))
            return returned

        _this_thread.buyer = attempt.buyer
        try:
            with connection.execute_wrapper(record_statement):
                return strategy.buy(attempt)
        except BrokenFile as error:
            purchase_errors.append(str(error))
            raise
        except (ProgrammingError, DataError, InternalError) as error:
            statement_errors.append(error)
            raise
        finally:
            _this_thread.buyer = None

    STRATEGIES[MINE] = replace(strategy, buy=buy_and_record)


def _record_row_locks() -> None:
    """Record which buyers call select_for_update().

    The call alone sends no statement. Only reading the rows sends SELECT ... FOR UPDATE.
    """
    select_for_update = QuerySet.select_for_update

    def record_and_call(rows: Any, *args: Any, **options: Any) -> Any:
        if buyer := getattr(_this_thread, "buyer", None):
            row_locks_requested.append(buyer)
        return select_for_update(rows, *args, **options)

    # This is not undone, because the process ends with the check. It uses setattr(), because mypy
    # refuses an assignment to a method.
    setattr(QuerySet, "select_for_update", record_and_call)  # noqa: B010


def has_unsent_row_lock() -> bool:
    """Return whether select_for_update() was called in this sale, but no row lock was sent."""
    return bool(row_locks_requested) and not _is_row_lock_sent()


def _is_row_lock_sent() -> bool:
    """Return whether a SELECT ... FOR UPDATE was sent in this sale."""
    return any("for update" in statement.text.casefold() for statement in statements)


def open_sale(units: int) -> int:
    """Open a new sale and return its number. Remove all locks and records of the last sale."""
    restart_step_timer()
    purchase_errors.clear()
    statement_errors.clear()
    statements.clear()
    row_locks_requested.clear()
    locks_client().flushdb()
    # A wrong try of lesson 8 may have left a fence that is higher than those of the next locks.
    Product.objects.filter(name=PRODUCT).update(fence=0)
    return opening.restock(product=PRODUCT, amount=units).pk


def buy(buyer: str) -> Receipt:
    """Sell one unit to this buyer under `mine`. Raises ShopError."""
    return check_out(Attempt(product=PRODUCT, buyer=buyer, lock=MINE))


def try_to_buy(buyer: str) -> str:
    """Buy one unit. Return `sold`, or the outcome with which the shop refused the purchase.

    If the cause is a mistake in the participant's file, the error is raised.
    """
    try:
        buy(buyer)
    except BrokenFile:
        raise
    except ShopError as error:
        if isinstance(error.__cause__, (ProgrammingError, DataError)):
            raise  # the shop answers `unavailable`, but the file's SQL statement was wrong
        return error.outcome
    return "sold"


def describe_answer(purchase: Callable[[], str]) -> str:
    """Run a purchase and return its outcome.

    If an error in the participant's file ended the purchase, return the first line of its message.
    """
    try:
        return purchase()
    except (BrokenFile, DatabaseError) as error:
        return str(error).splitlines()[0]


@contextmanager
def interrupt_at_statement(number: int, interruption: Callable[[], object]) -> Iterator[list[str]]:
    """Call `interruption` just before this thread sends its n-th statement in the block.

    Yields the list of the statements so far. It includes the n-th when `interruption` is called.

    number  n; if it is 0, `interruption` is never called
    """
    sent: list[str] = []

    def interrupt_or_execute(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        sent.append(" ".join(str(sql).split()))
        if len(sent) == number:
            interruption()
        return execute(sql, *rest)

    with connection.execute_wrapper(interrupt_or_execute):
        yield sent


def count_statements_of_a_purchase() -> int:
    """Let A buy one unit without an interruption, and return the number of its statements."""
    with interrupt_at_statement(0, lambda: None) as sent:  # 0: only record the statements
        buy("A")
    return len(sent)


def raise_killed() -> None:
    """End a purchase as if its process had been killed. Raises Killed."""
    raise Killed


def check_single_buyer(after_read: Callable[[], None] | None = None) -> Refusal | None:
    """Return a refusal unless one buyer gets the only unit, and other products stay unchanged.

    after_read  called when the buyer has read the stock, at the shop's point `after_read`
    """

    def at_point(name: str, facts: Mapping[str, object]) -> None:
        if name == "after_read" and after_read is not None:
            after_read()

    opening.restock(product=OTHER_PRODUCT, amount=OTHER_STOCK)
    sale = open_sale(1)
    with use_probe(at_point):
        outcome = try_to_buy("A")
    if count_orders_and_stock(sale) != (1, 0):
        return _explain_wrong_sale(sale, outcome)
    left = Product.objects.get(name=OTHER_PRODUCT).amount
    if left != OTHER_STOCK:
        return Refusal("other-products", {"left": left, "stock": OTHER_STOCK})
    return None


def _explain_wrong_sale(sale: int, outcome: str) -> Refusal:
    """Return the refusal for a sale of one unit that did not end with one order and no stock.

    outcome  the shop's answer to A, who was the only buyer
    """
    orders, left = count_orders_and_stock(sale)
    if orders > 1:
        return Refusal("more-than-one", {"stock": 1, "orders": orders, "left": left})
    if orders:
        return Refusal("order-without-unit", {"left": left})
    if outcome == "sold_out":
        # The code may have tried to take two units, and found only one. Try a larger stock.
        larger_sale = open_sale(SEVERAL_UNITS)
        try_to_buy("A")
        orders, left = count_orders_and_stock(larger_sale)
        if orders and (orders, left) != (1, SEVERAL_UNITS - 1):
            facts = {"stock": SEVERAL_UNITS, "orders": orders, "left": left}
            return Refusal("more-than-one", facts)
    return Refusal("never-sells", {"outcome": outcome})


def check_killed_purchase() -> Refusal | None:
    """Return a refusal if a killed purchase leaves an order and the old stock, or only one of both.

    One purchase is killed before its second statement, the next one before its third, and so on.
    A purchase that is killed after its COMMIT, for instance before it releases a session lock,
    leaves both an order and a reduced stock, which is right.
    """
    for number in count(2):
        sale = open_sale(1)
        with suppress(Killed), interrupt_at_statement(number, raise_killed) as sent:
            buy("A")
        connection.close()  # as if the process had ended: the database rolls back
        if len(sent) < number:  # the purchase ended before it sent an n-th statement
            return None
        orders, left = count_orders_and_stock(sale)
        if (orders, left) not in ((0, 1), (1, 0)):
            return Refusal("no-transaction", {"orders": orders, "left": left})
    return None


def check_second_buyer() -> Refusal | None:
    """Return a refusal unless the second buyer of a single unit is answered `sold_out`."""
    open_sale(1)
    try_to_buy("A")
    answer = describe_answer(partial(try_to_buy, "B"))
    return None if answer == "sold_out" else Refusal("sold-out-not-said", {"answer": answer})


def run_unless_blocked(actor: StoppingActor, *, to: str | None = ENDED) -> bool:
    """Let a paused buyer go on until the point `to`, or until the end of its purchase.

    Return True if the buyer has reached one of these, and False if the database blocks it first.
    """
    restart_step_timer()
    while True:
        actor.resume()
        while not actor.wait_until_settled(BLOCKED_CHECK_SECONDS):
            with connection.cursor() as cursor:
                cursor.execute(BLOCKED_BUYER_QUERY)
                if cursor.fetchone()[0]:
                    return False
        if actor.waits_at in (to, ENDED):
            return True


def tell_story(log: Sequence[str]) -> tuple[str, ...]:
    """Return a story of one line: the points that the buyers reached, in order.

    log  entries such as "A after_read"
    """
    moves = []
    for entry in log:
        buyer, _, point_name = entry.partition(" ")
        moves.append(f"{buyer} {PAUSES_IN_WORDS.get(point_name, point_name)}")
    return (", ".join(moves),)


def run_all_schedules() -> Iterator[two_buyers.ScheduleRun]:
    """Yield the run of every schedule of two buyers, for one unit and for two.

    Raises the database's error if a buyer has sent a wrong statement.
    """
    open_sale(1)  # also removes the locks that earlier purchases left
    for units in (1, 2):
        for run in two_buyers.run_all_schedules(MINE, units):
            restart_step_timer()
            if statement_errors:
                raise statement_errors[0]
            yield run


def describe_run(run: two_buyers.ScheduleRun) -> str:
    """Return a run in the words of the lessons: `ABAABB: A reads, B reads, ...; 2 of 1 sold`."""
    words = []
    for number, entry in enumerate(run.log):
        buyer, _, point_name = entry.partition(" ")
        words_for_point = POINTS_IN_WORDS.get(point_name, point_name)
        if point_name == "end":
            has_committed = f"{buyer} at_commit" in run.log[:number]
            words_for_point = "commits" if has_committed else "buys nothing"
        words.append(f"{buyer} {words_for_point}")
    sold = f"{run.report.orders} of {run.report.initial_stock} sold, {run.report.stock_left} left"
    return f"{run.schedule}: {', '.join(words)}; {sold}"


def count_orders_and_stock(sale: int) -> tuple[int, int]:
    """Return the number of orders of this sale, and the stock left."""
    orders = PurchaseHistory.objects.filter(sale_id=sale).count()
    return orders, Product.objects.get(name=PRODUCT).amount


# --- the lessons ----------------------------------------------------------------------------------


def inside_out(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in the nesting of lock and transaction, or None.

    lessons.toml refers to this function.
    """
    install_as_mine(module)
    return (
        _check_lock_is_held()
        or check_killed_purchase()
        or _check_release_without_sale()
        or check_second_buyer()
        or _check_schedules_under_lock()
        or _check_pause_after_every_statement()
    )


def _check_lock_is_held() -> Refusal | None:
    """Return a refusal unless a buyer holds the lock while it buys, and then releases the lock."""
    was_free_at_read: list[bool] = []
    keys_during_sale: set[str] = set()

    def inspect_redis() -> None:
        keys_during_sale.update(_read_redis_keys())
        was_free_at_read.append(_is_lock_free())

    refusal = check_single_buyer(inspect_redis)
    if refusal is not None and refusal.facts.get("outcome") == "busy":
        return Refusal("waits-for-itself")  # no other buyer could hold the lock
    if refusal is not None:
        return refusal
    if any(was_free_at_read):
        # The key of a lock has been deleted by now. The key that counts the fences stays.
        if held_keys := keys_during_sale - _read_redis_keys():
            return Refusal("another-lock", {"other": min(held_keys)})
        return Refusal("not-held")
    return None if _is_lock_free() else Refusal("never-released")


def _check_release_without_sale() -> Refusal | None:
    """Return a refusal unless a buyer who finds no stock left releases the lock."""
    open_sale(0)
    describe_answer(partial(try_to_buy, "A"))
    return None if _is_lock_free() else Refusal("released-after-a-sale-only")


def _read_redis_keys() -> set[str]:
    return {str(key, "utf-8", "replace") for key in locks_client().scan_iter()}


def _is_lock_free() -> bool:
    """Return whether B can acquire the lock now. B releases it again."""
    lease = redis_lock(Attempt(product=PRODUCT, buyer="B", lock=MINE)).try_acquire()
    if lease is not None:
        lease.release()
    return lease is not None


def _check_schedules_under_lock() -> Refusal | None:
    """Return a refusal if any schedule of two buyers oversells or loses an update."""
    runs = list(run_all_schedules())
    wrong_runs = [run for run in runs if run.is_wrong]
    if not wrong_runs:
        return None
    facts = {"wrong_runs": len(wrong_runs), "runs": len(runs)}
    return Refusal("free-before-commit", facts, (describe_run(wrong_runs[0]),))


def _check_pause_after_every_statement() -> Refusal | None:
    """Return a refusal if an update is lost when A is paused after any of its statements."""
    open_sale(2)  # enough stock for the purchase whose statements are counted
    for number in range(1, count_statements_of_a_purchase() + 1):
        if refusal := _check_pause_after(number):
            return refusal
    return None


def _check_pause_after(number: int) -> Refusal | None:
    """Return a refusal if an update is lost when A is paused after this statement.

    number  the position of the statement in A's purchase, from 1
    """
    sale = open_sale(AMPLE_STOCK)
    statement_numbers = count(1)

    def execute_and_pause(execute: Callable[..., Any], *statement: Any) -> Any:
        returned = execute(*statement)
        if next(statement_numbers) == number:
            point_reached.send("paused")
        return returned

    def buy_with_pause() -> str:
        with connection.execute_wrapper(execute_and_pause):
            return try_to_buy("A")

    # B is refused at once if A has the lock. Only a wait in the database blocks B.
    with override_settings(SHOP_LOCK_WAIT=0.0), Interleaving() as run:
        buyer_a = run.start("A", buy_with_pause)
        with suppress(AssertionError):  # the purchase ended without reaching the point
            buyer_a.run_to("paused")
        if buyer_a.waits_at != "paused":
            return None  # A's purchase sent fewer statements than expected
        buyer_b = run.start("B", partial(try_to_buy, "B"))
        run_unless_blocked(buyer_b)
        buyer_a.finish()
        buyer_b.finish()
    if sale_report(sale).lost_updates:
        return Refusal("read-before-lock", {}, tell_story(run.log))
    return None


def no_lock(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in a purchase without a lock, or None.

    lessons.toml refers to this function.
    """
    install_as_mine(module)
    return (
        _check_no_lock_is_used()
        or check_killed_purchase()
        or _check_schedules()
        or check_second_buyer()
        or _check_key_is_kept()
        or _check_order_is_not_denied()
    )


def any_purchase(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in purchases that do not overlap, or None.

    lessons.toml refers to this function.
    """
    install_as_mine(module)
    return (
        check_single_buyer()
        or check_killed_purchase()
        or check_second_buyer()
        or _check_key_is_kept()
        or _check_order_is_not_denied()
        or _check_no_second_purchase()
    )


def _check_key_is_kept() -> Refusal | None:
    """Return a refusal if a second request with the same key buys a second unit."""
    sale = open_sale(2)
    key = uuid.uuid4().hex
    for _ in range(2):
        check_out(Attempt(product=PRODUCT, buyer="A", lock=MINE, key=key))
    orders, _ = count_orders_and_stock(sale)
    return Refusal("key-dropped", {"orders": orders}) if orders > 1 else None


def _check_order_is_not_denied() -> Refusal | None:
    """Return a refusal if a buyer has an order, but is told that nothing was sold.

    The answer to the buyer's COMMIT is lost.
    """
    orders, answer = _buy_and_lose_commit_answer()
    if orders and answer in FINAL_OUTCOMES:
        return Refusal("denies-an-order", {"answer": answer}, COMMIT_WITHOUT_AN_ANSWER)
    return None


def _check_no_second_purchase() -> Refusal | None:
    """Return a refusal if a purchase is repeated after the answer to its COMMIT was lost."""
    orders, _ = _buy_and_lose_commit_answer()
    if orders > 1:
        return Refusal("repeats-the-purchase", {"orders": orders}, COMMIT_WITHOUT_AN_ANSWER)
    return None


def _buy_and_lose_commit_answer() -> tuple[int, str]:
    """Let A buy, and lose the answer to A's COMMIT. Return the number of orders and A's outcome."""
    sale = open_sale(2)
    with _lose_answer_of_commit():
        outcome = describe_answer(partial(try_to_buy, "A"))
    orders, _ = count_orders_and_stock(sale)
    return orders, outcome


@contextmanager
def _lose_answer_of_commit() -> Iterator[None]:
    """Lose the answer to this thread's next COMMIT in the block.

    The COMMIT succeeds, but then OperationalError is raised, as if the server had not answered.
    """
    commit = connection.commit

    def commit_and_lose_the_answer() -> None:
        # Undo the patch, because the purchase may commit again. This uses setattr(), because mypy
        # refuses an assignment to a method.
        setattr(connection, "commit", commit)  # noqa: B010
        commit()
        raise OperationalError("the connection was lost") from psycopg.OperationalError(
            "server closed the connection unexpectedly"
        )

    setattr(connection, "commit", commit_and_lose_the_answer)  # noqa: B010
    try:
        yield
    finally:
        setattr(connection, "commit", commit)  # noqa: B010


def _check_no_lock_is_used() -> Refusal | None:
    """Return a refusal unless the buyer gets the only unit while Redis has no key."""
    key_counts: list[int] = []
    refusal = check_single_buyer(lambda: key_counts.append(int(locks_client().dbsize())))
    if refusal is None and any(key_counts):
        return Refusal("uses-a-lock", {"keys": key_counts[0]})
    return refusal


def _check_schedules() -> Refusal | None:
    """Return a refusal if any schedule oversells, loses an update, or ends with an unsold unit.

    A schedule is an order of the moves of two buyers. Errors of a buyer are refused, too.
    """
    try:
        with _let_other_buyer_move_in_sleep():
            for run in run_all_schedules():
                facts = {"schedule": run.schedule}
                story = (describe_run(run),)
                if run.is_wrong:
                    return Refusal(_classify_violation(), facts, story)
                # An earlier check has shown that the code sells to a single buyer, so it fails
                # only when no unit is left.
                if purchase_errors:
                    return Refusal("sold-out-not-said", {"answer": purchase_errors[0]}, story)
                if run.report.undersold:
                    return Refusal("gave-up", facts, story)
                statements.clear()
    except AssertionError as error:
        cause = error.__cause__  # the buyer's error, because of which the schedule ended
        if isinstance(cause, IntegrityError):
            return Refusal("check-as-flow", {"error": str(cause).splitlines()[0]})
        if isinstance(cause, OperationalError):
            is_deadlock = getattr(cause.__cause__, "sqlstate", None) == DEADLOCK_SQLSTATE
            code = "locks-knotted" if is_deadlock else "conflict-not-retried"
            return Refusal(code, {"error": str(cause).splitlines()[0]})
        raise
    return None


@contextmanager
def _let_other_buyer_move_in_sleep() -> Iterator[None]:
    """Let the other buyer make its next move while a buyer sleeps between two transactions.

    The sleeping buyer holds no lock and will try again, like a buyer who was answered `busy`. So
    its sleep is reported as the point `refused`, at which a schedule lets the other buyer move.
    """
    sleep = time.sleep

    def wait_or_sleep(seconds: float) -> None:
        # testing/actor.py gives the threads of buyers this name.
        is_buyer = threading.current_thread().name.startswith("interleaved-")
        if is_buyer and not connection.in_atomic_block:
            point_reached.send("refused")
        else:
            sleep(seconds)

    with patch.object(time, "sleep", wait_or_sleep):
        yield


def _classify_violation() -> str:
    """Return the code of the refusal for a schedule that oversold, according to the cause.

    The cause is found in `statements`, the recorded SQL statements of both buyers.
    """
    if has_unsent_row_lock():
        return "lock-not-sent"
    updates = [statement for statement in statements if _is_product_update(statement)]
    buyers_with_update = {update.buyer for update in updates}
    buyers_with_order = {statement.buyer for statement in statements if _is_order_insert(statement)}
    for update in updates:
        later_statements = statements[statements.index(update) :]
        inserts_order_later = any(
            statement.buyer == update.buyer and _is_order_insert(statement)
            for statement in later_statements
        )
        if update.row_count == 0 and inserts_order_later:
            return "row-count-ignored"
    if buyers_with_order - buyers_with_update:
        return "order-without-write"
    if _is_row_lock_sent():
        return "read-before-lock"
    changes = [update.text.casefold().partition(" where ")[0] for update in updates]
    conditions = [update.text.casefold().partition(" where ")[2] for update in updates]
    is_version_compared = any("version" in condition for condition in conditions)
    is_version_raised = any("version" in change for change in changes)
    if is_version_compared and not is_version_raised:
        return "version-not-raised"
    return "last-writer-wins"


def _is_product_update(statement: SentStatement) -> bool:
    """Return whether a statement updates the product's row."""
    return "update product " in statement.text.casefold()


def _is_order_insert(statement: SentStatement) -> bool:
    """Return whether a statement inserts an order."""
    return statement.text.casefold().startswith("insert into purchase")
