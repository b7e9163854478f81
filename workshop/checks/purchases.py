"""Purchases under the participant's file, in this process, stopped or killed by a check; and the
lessons 6, 11 and 12: a transaction inside a lock, and purchases without one."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any
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
from shop.sale.points import installed, point
from shop.sale.purchase import Attempt, Receipt
from shop.sale.reports import sale_report
from shop.schedules import two_buyers
from shop.schedules.interleaving import Interleaving, StoppingActor
from shop.strategies import STRATEGIES
from workshop.checks.watch import restart_step_timer
from workshop.refusal import Refusal

MINE = "mine"
#: What the purchases of the present sale broke off with.
broken: list[str] = []
#: Errors of the database that say that what they sent was wrong. The shop takes some of them for a
#: lost connection, and answers `unavailable`.
sent_wrongly: list[DatabaseError] = []
#: What they have sent to the database: buyer, statement, rows.
statements: list[tuple[str, str, int]] = []
#: The buyers of the present sale that called select_for_update().
row_locks_requested: list[str] = []
#: `buyer`: whose purchase runs in this thread.
_this_thread = threading.local()
#: Places of a schedule, in the words of the lessons.
SAID = {
    "after_read": "reads",
    "at_commit": "writes",
    "unlocked_before_commit": "gives its lock back",
}
PRODUCT = "apple"
#: Outcomes after which a buyer goes home without a unit.
FINAL = ("sold_out", "error")
#: Another product, which is not bought, and its stock.
OTHER, MANY = "pear", 5
#: SQLSTATE of a deadlock in the database.
DEADLOCK = "40P01"
#: The story of a refusal for what follows on a lost answer of the database.
COMMIT_WITHOUT_AN_ANSWER = ("A writes, A commits, the answer of the COMMIT gets lost",)


#: Seconds after which a buyer who goes on is looked at: is it blocked?
GLANCE = 0.01
BLOCKED = """
    SELECT coalesce(bool_or(pg_blocking_pids(pid) <> '{}'), false) FROM pg_stat_activity
    WHERE datname = current_database()
"""
#: Places of a purchase that is paused, in the words of the lessons.
PLACES = {
    "acquired": "has the lock",
    "paused": "is paused",
    "after_read": "reads",
    "before_commit": "writes",
    "at_commit": "is about to commit",
    "after_commit": "commits",
}


class Killed(BaseException):
    """Ends a purchase where its process would have been killed."""


def install(module: ModuleType) -> None:
    """Make this file the strategy `mine`, noted in `broken` and `statements`."""
    strategy = make_strategy(MINE, Path(str(module.__file__)))
    _note_row_locks()

    def noting(attempt: Attempt) -> Receipt:
        def record(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
            result = execute(sql, *rest)
            text = " ".join(str(sql).split()).replace('"', "")
            statements.append((attempt.buyer, text, rest[-1]["cursor"].rowcount))
            return result

        _this_thread.buyer = attempt.buyer
        try:
            with connection.execute_wrapper(record):
                return strategy.buy(attempt)
        except BrokenFile as error:
            broken.append(str(error))
            raise
        except (ProgrammingError, DataError, InternalError) as error:
            sent_wrongly.append(error)
            raise
        finally:
            _this_thread.buyer = None

    STRATEGIES[MINE] = replace(strategy, buy=noting)


def _note_row_locks() -> None:
    """Note each call of select_for_update(): it sends nothing by itself."""
    select_for_update = QuerySet.select_for_update

    def noted(rows: Any, *args: Any, **options: Any) -> Any:
        if buyer := getattr(_this_thread, "buyer", None):
            row_locks_requested.append(buyer)
        return select_for_update(rows, *args, **options)

    setattr(QuerySet, "select_for_update", noted)  # noqa: B010


def row_lock_was_not_sent() -> bool:
    """Return whether select_for_update() was called in this sale, and no statement locked a row."""
    sent = any("for update" in text.casefold() for _, text, _ in statements)
    return bool(row_locks_requested) and not sent


def open_sale(units: int) -> int:
    """A new sale, and no lock of an older one; its number."""
    restart_step_timer()
    broken.clear()
    sent_wrongly.clear()
    statements.clear()
    row_locks_requested.clear()
    locks_client().flushdb()
    Product.objects.filter(name=PRODUCT).update(fence=0)  # a wrong try may have left a high one
    return opening.restock(product=PRODUCT, amount=units).pk


def buy(buyer: str) -> Receipt:
    """Sell one unit under `mine`. Raises ShopError."""
    return check_out(Attempt(product=PRODUCT, buyer=buyer, lock=MINE))


def outcome_of(buyer: str) -> str:
    """Return `sold`, or the outcome of the refusal. Raises a mistake in the participant's file."""
    try:
        buy(buyer)
    except BrokenFile:
        raise
    except ShopError as error:
        if isinstance(error.__cause__, (ProgrammingError, DataError)):
            raise  # the shop names it unavailable; it is what the file has sent
        return error.outcome
    return "sold"


def answer_of(purchase: Callable[[], str]) -> str:
    """Its outcome; of a mistake in the participant's file, what it says."""
    try:
        return purchase()
    except (BrokenFile, DatabaseError) as error:
        return str(error).splitlines()[0]


@contextmanager
def at_statement(number: int, happens: Callable[[], object]) -> Iterator[list[str]]:
    """`happens` before the n-th statement that this thread sends inside the block; 0: never. Gives
    the statements, that one included."""
    sent: list[str] = []

    def before(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        sent.append(" ".join(str(sql).split()))
        if len(sent) == number:
            happens()
        return execute(sql, *rest)

    with connection.execute_wrapper(before):
        yield sent


def kill() -> None:
    """End a purchase as if its process were gone."""
    raise Killed


def alone(look: Callable[[], None] = lambda: None) -> Refusal | None:
    """One buyer and one unit: the buyer gets it, and of no other product. `look` is
    called once the stock was read."""
    opening.restock(product=OTHER, amount=MANY)
    sale = open_sale(1)
    with installed(lambda name, facts: look() if name == "after_read" else None):
        outcome = outcome_of("A")
    if count_orders_and_stock(sale) != (1, 0):
        return _not_one_unit(sale, outcome)
    left = Product.objects.get(name=OTHER).amount
    return None if left == MANY else Refusal("other-products", {"left": left, "stock": MANY})


def _not_one_unit(sale: int, outcome: str) -> Refusal:
    """Return why the first buyer of one unit has not got it."""
    orders, _ = count_orders_and_stock(sale)
    if orders:
        return Refusal("order-without-unit", {"units": 1, "left": count_orders_and_stock(sale)[1]})
    if outcome == "sold_out":  # would it sell if there were more?
        many = open_sale(MANY)
        outcome_of("A")
        orders, left = count_orders_and_stock(many)
        if orders and (orders, left) != (1, MANY - 1):
            facts = {"stock": MANY, "orders": orders, "left": left}
            return Refusal("more-than-one", facts)
    return Refusal("never-sells", {"outcome": outcome})


def killed() -> Refusal | None:
    """Killed before any of its statements, a purchase leaves an order and a unit less, or neither.

    It may send statements after its COMMIT, as to give back a lock of its session.
    """
    for number in count(2):
        sale = open_sale(1)
        with suppress(Killed), at_statement(number, kill) as sent:
            buy("A")
        connection.close()  # as when the process is gone: the database rolls back
        if len(sent) < number:  # it went on to its end
            return None
        orders, left = count_orders_and_stock(sale)
        if (orders, left) not in ((0, 1), (1, 0)):
            return Refusal("no-transaction", {"orders": orders, "left": left})
    return None


def second_of_one() -> Refusal | None:
    """One unit, two buyers one after the other: the second one is told that it is sold out."""
    open_sale(1)
    outcome_of("A")
    answer = answer_of(partial(outcome_of, "B"))
    return None if answer == "sold_out" else Refusal("sold-out-not-said", {"said": answer})


def goes_on(actor: StoppingActor, to: str = "") -> bool:
    """Let it go on to its end, or to a place. False: it waits for another buyer in the database."""
    restart_step_timer()
    while True:
        actor.resume()
        while not actor.wait_until_settled(GLANCE):
            with connection.cursor() as cursor:
                cursor.execute(BLOCKED)
                if cursor.fetchone()[0]:
                    return False
        if actor.waits_at in (to, None):
            return True


def story_of(log: Sequence[str]) -> tuple[str, ...]:
    """Return who reached which place, in the words of the lessons."""
    entries = (entry.partition(" ") for entry in log)
    return (", ".join(f"{buyer} {PLACES.get(place, place)}" for buyer, _, place in entries),)


def every_run() -> Iterator[two_buyers.ScheduleRun]:
    """Every schedule of two buyers, for one unit and for two.

    Raises the error of the database that says that a buyer's statement was wrong.
    """
    open_sale(1)  # and with it no lock of the purchase before
    for units in (1, 2):
        for run in two_buyers.every_run(MINE, units):
            restart_step_timer()
            if sent_wrongly:
                raise sent_wrongly[0]
            yield run


def told(run: two_buyers.ScheduleRun) -> str:
    """A run of a schedule in the words of the lessons: A reads, B reads, A writes, A commits."""
    words = []
    for number, entry in enumerate(run.log):
        buyer, _, place = entry.partition(" ")
        if place == "end":
            place = "commits" if f"{buyer} at_commit" in run.log[:number] else "buys nothing"
        words.append(f"{buyer} {SAID.get(place, place)}")
    sold = f"{run.report.orders} of {run.report.initial_stock} sold, {run.report.stock_left} left"
    return f"{run.schedule}: {', '.join(words)}; {sold}"


def count_orders_and_stock(sale: int) -> tuple[int, int]:
    """Return the number of orders of this sale, and the stock left."""
    orders = PurchaseHistory.objects.filter(sale_id=sale).count()
    return orders, Product.objects.get(name=PRODUCT).amount


# --- the lessons ----------------------------------------------------------------------------------


def inside_out(module: ModuleType) -> Refusal | None:
    """The first fault in how lock and transaction are nested, or None."""
    install(module)
    return (
        _under_a_lock()
        or killed()
        or _nothing_to_sell()
        or second_of_one()
        or _let_in()
        or _overtaken()
    )


def _under_a_lock() -> Refusal | None:
    """The first buyer gets the unit, holds the lock meanwhile, and leaves none behind."""
    free: list[bool] = []
    keys_during_sale: set[str] = set()

    def look() -> None:
        keys_during_sale.update(_keys_in_redis())
        free.append(_is_free())

    refusal = alone(look)
    if refusal is not None:
        return Refusal("waits-for-itself") if refusal.facts.get("outcome") == "busy" else refusal
    if any(free):
        # The counter of fences stays after a release; a lock goes.
        if held_keys := keys_during_sale - _keys_in_redis():
            return Refusal("another-lock", {"other": min(held_keys)})
        return Refusal("not-held")
    return None if _is_free() else Refusal("never-released")


def _nothing_to_sell() -> Refusal | None:
    """A buyer who finds nothing leaves no lock behind."""
    open_sale(0)
    answer_of(partial(outcome_of, "A"))
    return None if _is_free() else Refusal("released-after-a-sale-only")


def _keys_in_redis() -> set[str]:
    return {str(key, "utf-8", "replace") for key in locks_client().scan_iter()}


def _is_free() -> bool:
    lease = redis_lock(Attempt(product=PRODUCT, buyer="B", lock=MINE)).try_acquire()
    if lease is not None:
        lease.release()
    return lease is not None


def _let_in() -> Refusal | None:
    """No schedule of two buyers' moves sells a unit twice."""
    runs = list(every_run())
    bad = [run for run in runs if run.violates]
    if not bad:
        return None
    return Refusal("free-before-commit", {"bad": len(bad), "runs": len(runs)}, (told(bad[0]),))


def _overtaken() -> Refusal | None:
    """A is paused after each of its statements, B buys if it can, and A goes on."""
    open_sale(2)
    with at_statement(0, kill) as sent:
        buy("A")
    numbers = range(1, len(sent) + 1)
    return next(filter(None, (_overtaken_after(number) for number in numbers)), None)


def _overtaken_after(number: int) -> Refusal | None:
    """A is paused after its n-th statement."""
    sale = open_sale(10)
    places = count(1)

    def pause(execute: Callable[..., Any], *statement: Any) -> Any:
        result = execute(*statement)
        if next(places) == number:
            point.send("paused")
        return result

    def paused() -> str:
        with connection.execute_wrapper(pause):
            return outcome_of("A")

    with override_settings(SHOP_LOCK_WAIT=0.0), Interleaving() as run:
        a = run.enter("A", paused)
        with suppress(AssertionError):
            a.run_to("paused")
        if a.waits_at != "paused":
            return None  # this purchase sent fewer statements than the one before
        b = run.enter("B", partial(outcome_of, "B"))
        goes_on(b)
        a.finish()
        b.finish()
    if sale_report(sale).lost_updates:
        return Refusal("read-before-lock", {}, story_of(run.log))
    return None


def no_lock(module: ModuleType) -> Refusal | None:
    """The first fault in how the database is asked, or None."""
    install(module)
    return (
        _without_a_lock()
        or killed()
        or _schedules()
        or second_of_one()
        or _key_was_dropped()
        or _order_was_denied()
    )


def any_purchase(module: ModuleType) -> Refusal | None:
    """The first fault of a purchase whose buyers come one after the other, or None."""
    install(module)
    return (
        alone()
        or killed()
        or second_of_one()
        or _key_was_dropped()
        or _order_was_denied()
        or _bought_twice()
    )


def _key_was_dropped() -> Refusal | None:
    """An order has the key of its request: else a buyer who asks again buys a second time."""
    sale = open_sale(2)
    key = uuid.uuid4().hex
    for _ in range(2):
        check_out(Attempt(product=PRODUCT, buyer="A", lock=MINE, key=key))
    orders, _ = count_orders_and_stock(sale)
    return Refusal("key-dropped", {"orders": orders}) if orders > 1 else None


def _order_was_denied() -> Refusal | None:
    """The COMMIT is done and its answer gets lost: no buyer may be told that nothing was sold."""
    orders, answer = _commit_without_an_answer()
    if orders and answer in FINAL:
        return Refusal("denies-an-order", {"said": answer}, COMMIT_WITHOUT_AN_ANSWER)
    return None


def _bought_twice() -> Refusal | None:
    """The COMMIT is done and its answer gets lost: the purchase may not be made a second time."""
    orders, _ = _commit_without_an_answer()
    if orders > 1:
        return Refusal("repeats-the-purchase", {"orders": orders}, COMMIT_WITHOUT_AN_ANSWER)
    return None


def _commit_without_an_answer() -> tuple[int, str]:
    """Let A buy while the answer of its COMMIT gets lost; return its orders and its outcome."""
    sale = open_sale(2)
    with _answer_of_the_commit_lost():
        outcome = answer_of(partial(outcome_of, "A"))
    orders, _ = count_orders_and_stock(sale)
    return orders, outcome


@contextmanager
def _answer_of_the_commit_lost() -> Iterator[None]:
    """The next COMMIT of this thread is done, and ends in the error of a lost connection."""
    commit = connection.commit

    def commit_and_lose_the_answer() -> None:
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


def _without_a_lock() -> Refusal | None:
    """The first buyer gets the unit, and Redis holds nothing meanwhile."""
    locked: list[int] = []
    refusal = alone(lambda: locked.append(int(locks_client().dbsize())))
    return refusal or (Refusal("uses-a-lock", {"keys": locked[0]}) if any(locked) else None)


def _schedules() -> Refusal | None:
    """No schedule of two buyers' moves sells a unit twice, or gives up or breaks off."""
    try:
        with _sleep_lets_the_other_buyer_move():
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
            is_knot = getattr(cause.__cause__, "sqlstate", None) == DEADLOCK
            code = "locks-knotted" if is_knot else "conflict-not-retried"
            return Refusal(code, {"error": str(cause).splitlines()[0]})
        raise
    return None


@contextmanager
def _sleep_lets_the_other_buyer_move() -> Iterator[None]:
    """Let a buyer who sleeps between its transactions wait for the other buyer's next move.

    It has nothing locked, and looks again afterwards, as one that was answered `busy`.
    """
    sleep = time.sleep

    def wait_or_sleep(seconds: float) -> None:
        is_buyer = threading.current_thread().name.startswith("interleaved-")
        if is_buyer and not connection.in_atomic_block:
            point.send("refused")
        else:
            sleep(seconds)

    with patch.object(time, "sleep", wait_or_sleep):
        yield


def _how() -> str:
    """The code for a violation, by what was sent."""
    if row_lock_was_not_sent():
        return "lock-not-sent"
    updates = [(buyer, text, rows) for buyer, text, rows in statements if _is_update(text)]
    buyers = {buyer for buyer, text, _ in statements if _is_order(text)}
    for buyer, text, rows in updates:
        own = [other for name, other, _ in statements if name == buyer]
        if rows == 0 and any(map(_is_order, own[own.index(text) :])):
            return "row-count-ignored"
    if buyers - {buyer for buyer, _, _ in updates}:
        return "order-without-write"
    if any("for update" in text.casefold() for _, text, _ in statements):
        return "read-before-lock"
    halves = [text.casefold().partition(" where ") for _, text, _ in updates]
    compared = any("version" in condition for _, _, condition in halves)
    raised = any("version" in change for change, _, _ in halves)
    if compared and not raised:
        return "version-not-raised"
    return "last-writer-wins"


def _is_update(text: str) -> bool:
    """Return whether a statement writes the product's row."""
    return "update product " in text.casefold()


def _is_order(text: str) -> bool:
    """Return whether a statement inserts an order."""
    return text.casefold().startswith("insert into purchase")
