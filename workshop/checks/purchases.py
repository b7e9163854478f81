"""Purchases with the code of the participant's file, which a check runs, pauses or kills.

The last part of this module has three checks: check_inside_out() of lesson 6, check_no_lock() of
lesson 11 and check_any_purchase() of lesson 12. lessons.toml lists them as `purchases.inside_out`
and so on. Each runs several functions `_check_...`, in which the buyers A and B buy. Such a
function returns a Refusal, the reason why the file is not accepted, or None. lessons.toml explains
the codes of the refusals.
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
from shop.sale.locked import make_redis_lock
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
    """An SQL statement of a purchase.

    buyer      the name of the buyer whose purchase sent it
    text       its text, without quotation marks
    row_count  the number of rows that it returned or changed
    """

    buyer: str
    text: str
    row_count: int


#: The name of the strategy that the shop reads from the participant's file.
MINE = "mine"
#: Messages of the purchases in the current sale that failed by a mistake in the file (BrokenFile).
purchase_errors: list[str] = []
#: The database's errors for wrong statements in the current sale. The shop mistakes some of them
#: for a lost connection, and answers `unavailable`.
statement_errors: list[DatabaseError] = []
#: The statements of the current sale. The check of all schedules clears them after each schedule.
statements: list[SentStatement] = []
#: The names of the buyers who called select_for_update() in the current sale.
buyers_with_select_for_update: list[str] = []
#: The attribute `buyer` is the name of the buyer whose purchase runs in this thread.
_this_thread = threading.local()
#: Injection points of a purchase (shop/sale/points.py) -> the move of a schedule that ends there,
#: in the words of the lessons.
POINTS_IN_WORDS = {
    "after_read": "reads",
    "at_commit": "writes",
    "unlocked_before_commit": "releases its lock",
}
#: Injection points of a purchase -> what a buyer who is paused there does, in the words of the
#: lessons.
PAUSES_IN_WORDS = {
    "acquired": "has the lock",
    "paused": "is paused",
    "after_read": "reads",
    "before_commit": "writes",
    "at_commit": "is about to commit",
    "after_commit": "commits",
}
PRODUCT = "apple"
#: An initial stock that is larger than the number of buyers in any check.
AMPLE_STOCK = 10
#: An initial stock from which a wrong purchase can take several units.
SEVERAL_UNITS = 5
#: Outcomes of a purchase after which a buyer without a unit does not try again.
FINAL_OUTCOMES = ("sold_out", "error")
#: A product that no buyer of a check buys.
OTHER_PRODUCT = "pear"
#: The stock of OTHER_PRODUCT.
OTHER_STOCK = 5
#: PostgreSQL's SQLSTATE for a deadlock.
DEADLOCK_SQLSTATE = "40P01"
#: The story of a purchase whose COMMIT has no answer.
COMMIT_WITHOUT_AN_ANSWER = ("A writes, A commits, the answer of the COMMIT gets lost",)
#: Time between two queries whether the database blocks a resumed buyer.
BLOCKED_POLL_INTERVAL_SECONDS = 0.01
#: Selects whether any connection to this database waits for a lock of another connection.
BLOCKED_BUYER_QUERY = """
    SELECT coalesce(bool_or(pg_blocking_pids(pid) <> '{}'), false) FROM pg_stat_activity
    WHERE datname = current_database()
"""


class Killed(BaseException):
    """Ends a purchase at the statement before which its process would have been killed."""


def install_as_mine(module: ModuleType) -> None:
    """Let the shop sell with the participant's file under the strategy name `mine`.

    The errors, the SQL statements and the calls of select_for_update() of its purchases are
    recorded in lists of this module.
    """
    strategy = make_strategy(MINE, Path(str(module.__file__)))
    _record_calls_of_select_for_update()

    def buy_and_record(attempt: Attempt) -> Receipt:
        def record_statement(
            execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
        ) -> Any:
            return_value = execute(sql, params, many, context)
            text = " ".join(str(sql).split()).replace('"', "")
            statements.append(SentStatement(attempt.buyer, text, context["cursor"].rowcount))
            return return_value

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


def _record_calls_of_select_for_update() -> None:
    """Record which buyers call select_for_update().

    The call alone sends no statement. Only reading the rows sends SELECT ... FOR UPDATE.
    """
    select_for_update = QuerySet.select_for_update

    def record_and_call(rows: Any, *args: Any, **options: Any) -> Any:
        if buyer := getattr(_this_thread, "buyer", None):
            buyers_with_select_for_update.append(buyer)
        return select_for_update(rows, *args, **options)

    # This is not undone, because the process ends with the check. It uses setattr(), because mypy
    # refuses an assignment to a method.
    setattr(QuerySet, "select_for_update", record_and_call)  # noqa: B010


def has_unsent_row_lock() -> bool:
    """Return whether a buyer called select_for_update(), but its SELECT was never sent."""
    return bool(buyers_with_select_for_update) and not _was_select_for_update_sent()


def _was_select_for_update_sent() -> bool:
    """Return whether a SELECT ... FOR UPDATE was sent in the current sale."""
    return any("for update" in statement.text.casefold() for statement in statements)


def open_sale(units: int) -> int:
    """Open a new sale and return its number. Remove all locks and records of the last sale."""
    restart_step_timer()
    purchase_errors.clear()
    statement_errors.clear()
    statements.clear()
    buyers_with_select_for_update.clear()
    locks_client().flushdb()
    # A wrong file of lesson 8 may have left a fence that is higher than those of the next locks.
    Product.objects.filter(name=PRODUCT).update(fence=0)
    return opening.restock(product=PRODUCT, amount=units).pk


def buy(buyer: str) -> Receipt:
    """Sell one unit to this buyer with the participant's code. Raises ShopError."""
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


def run_and_describe_outcome(purchase: Callable[[], str]) -> str:
    """Run a purchase and return its outcome.

    If an error in the participant's file ended the purchase, return the first line of its message.
    """
    try:
        return purchase()
    except (BrokenFile, DatabaseError) as error:
        return str(error).splitlines()[0]


@contextmanager
def interrupt_before_statement(
    number: int, interruption: Callable[[], object]
) -> Iterator[list[str]]:
    """Call `interruption` once: just before this thread sends one of the block's statements.

    Yields a list of the statements so far, including the one that is about to be sent.

    number  the number of the statement, from 1; if it is 0, `interruption` is never called
    """
    sent_statements: list[str] = []

    def interrupt_and_execute(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        sent_statements.append(" ".join(str(sql).split()))
        if len(sent_statements) == number:
            interruption()
        return execute(sql, *rest)

    with connection.execute_wrapper(interrupt_and_execute):
        yield sent_statements


def count_statements_of_a_purchase() -> int:
    """Let A buy one unit without an interruption, and return the number of its statements."""
    # 0: only record the statements
    with interrupt_before_statement(0, lambda: None) as sent_statements:
        buy("A")
    return len(sent_statements)


def raise_killed() -> None:
    """End a purchase as if its process had been killed. Raises Killed."""
    raise Killed


def check_single_buyer(after_read: Callable[[], None] | None = None) -> Refusal | None:
    """Return a refusal unless one buyer gets the only unit, and other products stay unchanged.

    after_read  called when the buyer has read the stock
    """

    def act_at_point(point_name: str, details: Mapping[str, object]) -> None:
        if point_name == "after_read" and after_read is not None:
            after_read()

    opening.restock(product=OTHER_PRODUCT, amount=OTHER_STOCK)
    sale = open_sale(1)
    with use_probe(act_at_point):
        outcome = try_to_buy("A")
    if count_orders_and_stock(sale) != (1, 0):
        return _explain_wrong_sale(sale, outcome)
    other_stock_left = Product.objects.get(name=OTHER_PRODUCT).amount
    if other_stock_left != OTHER_STOCK:
        return Refusal("other-products", {"stock_left": other_stock_left, "stock": OTHER_STOCK})
    return None


def _explain_wrong_sale(sale: int, outcome: str) -> Refusal:
    """Return the refusal for a sale of one unit that did not end with one order and no stock.

    outcome  the outcome of A's purchase; A was the only buyer
    """
    orders, stock_left = count_orders_and_stock(sale)
    if orders > 1:
        return Refusal("more-than-one", {"stock": 1, "orders": orders, "stock_left": stock_left})
    if orders:
        return Refusal("order-without-unit", {"stock_left": stock_left})
    if outcome == "sold_out":
        # The code may have tried to take two units, and found only one. Try a larger stock.
        larger_sale = open_sale(SEVERAL_UNITS)
        try_to_buy("A")
        orders, stock_left = count_orders_and_stock(larger_sale)
        if orders and (orders, stock_left) != (1, SEVERAL_UNITS - 1):
            details = {"stock": SEVERAL_UNITS, "orders": orders, "stock_left": stock_left}
            return Refusal("more-than-one", details)
    return Refusal("never-sells", {"outcome": outcome})


def check_killed_purchase() -> Refusal | None:
    """Return a refusal if a killed purchase leaves an order without a reduced stock, or vice versa.

    One purchase is killed before its second statement, the next one before its third, and so on.
    A purchase that is killed after its COMMIT, for instance before it releases a session lock,
    leaves both an order and a reduced stock, which is right.
    """
    # A purchase that is killed before its first statement leaves nothing, so begin with the second.
    for statement_number in count(2):
        sale = open_sale(1)
        with (
            suppress(Killed),
            interrupt_before_statement(statement_number, raise_killed) as sent_statements,
        ):
            buy("A")
        connection.close()  # as if the process had ended: the database rolls back
        if len(sent_statements) < statement_number:  # the purchase ended without being killed
            return None
        orders, stock_left = count_orders_and_stock(sale)
        if (orders, stock_left) not in ((0, 1), (1, 0)):
            return Refusal("no-transaction", {"orders": orders, "stock_left": stock_left})
    return None


def check_second_buyer() -> Refusal | None:
    """Return a refusal unless the second buyer of a single unit gets the outcome `sold_out`."""
    open_sale(1)
    try_to_buy("A")
    outcome = run_and_describe_outcome(partial(try_to_buy, "B"))
    return None if outcome == "sold_out" else Refusal("sold-out-not-said", {"answer": outcome})


def run_unless_blocked(actor: StoppingActor, *, to: str | None = ENDED) -> bool:
    """Let a paused buyer go on until an injection point, or until the end of its purchase.

    Return False if the database blocks the buyer before that, otherwise True.

    actor  the buyer
    to     the name of the injection point; ENDED: only the end of the purchase counts
    """
    restart_step_timer()
    while True:
        actor.resume()
        while not actor.wait_until_settled(BLOCKED_POLL_INTERVAL_SECONDS):
            with connection.cursor() as cursor:
                cursor.execute(BLOCKED_BUYER_QUERY)
                if cursor.fetchone()[0]:
                    return False
        if actor.waits_at in (to, ENDED):
            return True


def describe_steps(log: Sequence[str]) -> tuple[str, ...]:
    """Return the buyers' steps in words, as a story of one line: `A has the lock, A reads, ...`.

    log  a buyer and the injection point that it reached, in order, such as "A after_read"
    """
    steps = []
    for entry in log:
        buyer, _, point_name = entry.partition(" ")
        steps.append(f"{buyer} {PAUSES_IN_WORDS.get(point_name, point_name)}")
    return (", ".join(steps),)


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
    """Return a run in the words of the lessons: `ABAABB: A reads, B reads, ...; 2 of 1 sold`.

    Each entry of the run's log is a buyer and the injection point that it reached, such as
    "A after_read".
    """
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


def check_inside_out(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in the nesting of lock and transaction, or None.

    In lessons.toml, the name of this check is `purchases.inside_out`.
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
    if refusal is not None and refusal.details.get("outcome") == "busy":
        return Refusal("waits-for-itself")  # A is the only buyer, so only A can hold the lock
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
    run_and_describe_outcome(partial(try_to_buy, "A"))
    return None if _is_lock_free() else Refusal("released-after-a-sale-only")


def _read_redis_keys() -> set[str]:
    return {str(key, "utf-8", "replace") for key in locks_client().scan_iter()}


def _is_lock_free() -> bool:
    """Return whether buyer B can acquire the lock now. B releases the lock again."""
    lease = make_redis_lock(Attempt(product=PRODUCT, buyer="B", lock=MINE)).try_acquire()
    if lease is not None:
        lease.release()
    return lease is not None


def _check_schedules_under_lock() -> Refusal | None:
    """Return a refusal if any schedule of two buyers oversells or loses an update.

    A schedule is an order of the moves of two buyers.
    """
    runs = list(run_all_schedules())
    wrong_runs = [run for run in runs if run.is_wrong]
    if not wrong_runs:
        return None
    details = {"wrong_runs": len(wrong_runs), "runs": len(runs)}
    return Refusal("free-before-commit", details, (describe_run(wrong_runs[0]),))


def _check_pause_after_every_statement() -> Refusal | None:
    """Return a refusal if an update is lost when buyer A is paused after any of its statements."""
    open_sale(2)  # enough stock for the purchase whose statements are counted
    for number in range(1, count_statements_of_a_purchase() + 1):
        if refusal := _check_pause_after(number):
            return refusal
    return None


def _check_pause_after(number: int) -> Refusal | None:
    """Return a refusal if an update is lost when buyer A is paused after this statement.

    Buyer B buys during the pause, unless the database blocks it.

    number  the position of the statement in A's purchase, from 1
    """
    sale = open_sale(AMPLE_STOCK)
    statement_numbers = count(1)

    def execute_and_pause(execute: Callable[..., Any], *statement: Any) -> Any:
        return_value = execute(*statement)
        if next(statement_numbers) == number:
            point_reached.send("paused")
        return return_value

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
        return Refusal("read-before-lock", {}, describe_steps(run.log))
    return None


def check_no_lock(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in a purchase without a lock, or None.

    In lessons.toml, the name of this check is `purchases.no_lock`.
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


def check_any_purchase(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in purchases that do not overlap, or None.

    In lessons.toml, the name of this check is `purchases.any_purchase`.
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
    """Return a refusal if a second request with the same Idempotency-Key buys a second unit."""
    sale = open_sale(2)
    key = uuid.uuid4().hex
    for _ in range(2):
        check_out(Attempt(product=PRODUCT, buyer="A", lock=MINE, key=key))
    orders, _ = count_orders_and_stock(sale)
    return Refusal("key-dropped", {"orders": orders}) if orders > 1 else None


def _check_order_is_not_denied() -> Refusal | None:
    """Return a refusal if a buyer who has an order gets an outcome that denies it.

    The answer to the COMMIT of this order is lost. The outcomes that deny it are FINAL_OUTCOMES.
    """
    orders, outcome = _buy_and_lose_commit_answer()
    if orders and outcome in FINAL_OUTCOMES:
        return Refusal("denies-an-order", {"answer": outcome}, COMMIT_WITHOUT_AN_ANSWER)
    return None


def _check_no_second_purchase() -> Refusal | None:
    """Return a refusal if a purchase is repeated after the answer to its COMMIT was lost."""
    orders, _ = _buy_and_lose_commit_answer()
    if orders > 1:
        return Refusal("repeats-the-purchase", {"orders": orders}, COMMIT_WITHOUT_AN_ANSWER)
    return None


def _buy_and_lose_commit_answer() -> tuple[int, str]:
    """Let buyer A buy, and lose the answer to its COMMIT.

    Return the number of orders, and the outcome of A's purchase.
    """
    sale = open_sale(2)
    with _lose_answer_of_commit():
        outcome = run_and_describe_outcome(partial(try_to_buy, "A"))
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
    """Return a refusal unless a buyer gets the only unit while Redis has no key."""
    key_counts: list[int] = []
    refusal = check_single_buyer(lambda: key_counts.append(int(locks_client().dbsize())))
    if refusal is None and any(key_counts):
        return Refusal("uses-a-lock", {"keys": key_counts[0]})
    return refusal


def _check_schedules() -> Refusal | None:
    """Return a refusal if any schedule oversells, loses an update, or ends with an unsold unit.

    A schedule is an order of the moves of two buyers. A buyer that ends with an error leads to a
    refusal, too.
    """
    try:
        with _let_other_buyer_move_in_sleep():
            for run in run_all_schedules():
                details = {"schedule": run.schedule}
                story = (describe_run(run),)
                if run.is_wrong:
                    return Refusal(_find_code_of_wrong_schedule(), details, story)
                # An earlier check has shown that the code sells to a single buyer, so it fails
                # only when no unit is left.
                if purchase_errors:
                    return Refusal("sold-out-not-said", {"answer": purchase_errors[0]}, story)
                if run.report.undersold:
                    return Refusal("gave-up", details, story)
                statements.clear()
    except AssertionError as error:
        cause = error.__cause__  # the error of the buyer's purchase, which ended the schedule
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

    The sleeping buyer holds no lock and will try again, like a buyer with the outcome `busy`. So
    the sleep counts as the injection point `refused`, at which the other buyer moves next.
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


def _find_code_of_wrong_schedule() -> str:
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
    if _was_select_for_update_sent():
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
