"""Purchases under the participant's file, in this process, stopped or killed by a check."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from django.db import DatabaseError, DataError, ProgrammingError, connection
from django.db.backends.signals import connection_created

from shop.demo.mine import BrokenFile, strategy_of
from shop.demo.schedules import Run, Scheduler
from shop.errors import ShopError
from shop.models import Product, PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale import stock
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt, Receipt
from shop.strategies import STRATEGIES
from workshop.checks.watch import alive
from workshop.refusal import Refusal

MINE = "mine"
#: What the purchases of the present sale broke off with.
broken: list[str] = []
#: Places of a schedule, in the words of the lessons.
SAID = {
    "after_read": "reads",
    "at_commit": "writes",
    "unlocked_before_commit": "gives its lock back",
}
PRODUCT = "apple"
#: Another product, of which nobody buys, and its stock.
OTHER, MANY = "pear", 5


class Killed(BaseException):
    """Ends a purchase where its process would have been killed."""


def install(module: ModuleType) -> None:
    """Make this file the strategy `mine`; `broken` notes what its purchases broke off with."""
    strategy = strategy_of(MINE, Path(str(module.__file__)))

    def noting(attempt: Attempt) -> Receipt:
        try:
            return strategy.buy(attempt)
        except BrokenFile as error:
            broken.append(str(error))
            raise

    STRATEGIES[MINE] = replace(strategy, buy=noting)


def open_sale(units: int) -> int:
    """A new sale, and no lock of an older one; its number."""
    alive()
    broken.clear()
    locks_client().flushdb()
    Product.objects.filter(name=PRODUCT).update(fence=0)  # a wrong try may have left a high one
    return stock.restock(product=PRODUCT, amount=units).pk


def buy(buyer: str, *, key: str | None = None) -> Receipt:
    """One purchase under `mine`. Raises ShopError."""
    return check_out(Attempt(product=PRODUCT, buyer=buyer, lock=MINE, key=key))


def outcome_of(call: Callable[[], Any]) -> str:
    """`sold`, or the outcome of the refusal. Raises what is a mistake in the participant's file."""
    try:
        call()
    except BrokenFile:
        raise
    except ShopError as error:
        if isinstance(error.__cause__, (ProgrammingError, DataError)):
            raise  # the shop names it unavailable; it is what the file has sent
        return error.outcome
    return "sold"


def alone() -> Refusal | None:
    """One buyer, one unit, nobody else: the buyer gets it, and of no other product."""
    stock.restock(product=OTHER, amount=MANY)
    sale = open_sale(1)
    outcome = outcome_of(lambda: buy("A"))
    if books(sale) != (1, 0):
        return Refusal("never-sells", {"outcome": outcome})
    left = Product.objects.get(name=OTHER).amount
    return None if left == MANY else Refusal("other-products", {"left": left, "stock": MANY})


def killed() -> Refusal | None:
    """Killed before any of its statements, a purchase leaves nothing behind: no order, and no unit
    that is gone."""
    open_sale(1)
    for number in range(2, _sent_before_killed("A", 0) + 1):
        sale = open_sale(1)
        if _sent_before_killed("A", number) < number:
            return None  # it sent fewer than the one before, and was not killed
        orders, left = books(sale)
        if (orders, left) != (0, 1):
            return Refusal("no-transaction", {"orders": orders, "left": left})
    return None


def _sent_before_killed(buyer: str, statement: int) -> int:
    """A purchase that is killed before its n-th statement; how many it was about to send."""
    sent = 0

    def before(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent == statement:
            raise Killed
        return execute(sql, *rest)

    with suppress(Killed), connection.execute_wrapper(before):
        buy(buyer)
    connection.close()  # as when the process is gone: the database rolls back
    return sent


def second_of_one() -> Refusal | None:
    """One unit, two buyers one after the other: the second one is told that it is sold out."""
    open_sale(1)
    outcome_of(lambda: buy("A"))
    try:
        said = outcome_of(lambda: buy("B"))
    except (BrokenFile, DatabaseError) as error:
        said = str(error).splitlines()[0]
    return None if said == "sold_out" else Refusal("sold-out-not-said", {"said": said})


def every_run() -> Iterator[Run]:
    """Every schedule of two buyers, for one unit and for two."""
    open_sale(1)  # and with it no lock of the purchase before
    with Scheduler(MINE) as scheduler:
        for units in (1, 2):
            for run in scheduler.every_run(units):
                alive()
                yield run


def told(run: Run) -> str:
    """A run of a schedule in the words of the lessons: A reads, B reads, A writes, A commits."""
    words = []
    for number, entry in enumerate(run.log):
        buyer, _, place = entry.partition(" ")
        if place == "end":
            place = "commits" if f"{buyer} at_commit" in run.log[:number] else "buys nothing"
        words.append(f"{buyer} {SAID.get(place, place)}")
    sold = f"{run.report.orders} of {run.report.initial_stock} sold, {run.report.stock_left} left"
    return f"{run.schedule}: {', '.join(words)}; {sold}"


def books(sale: int) -> tuple[int, int]:
    """Orders of this sale, and stock left."""
    orders = PurchaseHistory.objects.filter(sale_id=sale).count()
    return orders, Product.objects.get(name=PRODUCT).amount


@contextmanager
def statements() -> Iterator[list[tuple[str, str, int]]]:
    """Every statement of every connection opened inside the block: thread, text, rows."""
    seen: list[tuple[str, str, int]] = []

    def record(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Mapping[str, Any]
    ) -> Any:
        result = execute(sql, params, many, context)
        text = " ".join(sql.split()).replace('"', "")
        seen.append((threading.current_thread().name, text, context["cursor"].rowcount))
        return result

    def watch(connection: Any, **_: Any) -> None:
        if record not in connection.execute_wrappers:
            connection.execute_wrappers.append(record)

    connection.close()
    connection_created.connect(watch)
    try:
        yield seen
    finally:
        connection_created.disconnect(watch)
        connection.close()
