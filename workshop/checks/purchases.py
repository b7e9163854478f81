"""Purchases under the participant's file, in this process, stopped or killed by a check."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from django.db import connection
from django.db.backends.signals import connection_created

from shop.demo.mine import strategy_of
from shop.errors import ShopError
from shop.models import Product, PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale import stock
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt, Receipt
from shop.strategies import STRATEGIES
from workshop.checks.step import alive

MINE = "mine"
PRODUCT = "apple"


class Killed(BaseException):
    """Ends a purchase where its process would have been killed."""


def install(module: ModuleType) -> None:
    """Make this file the strategy `mine`."""
    path = Path(str(module.__file__))
    STRATEGIES[MINE] = strategy_of(MINE, path)


def open_sale(units: int) -> int:
    """A new sale, and no lock of an older one; its number."""
    alive()
    locks_client().flushdb()
    Product.objects.filter(name=PRODUCT).update(fence=0)  # a wrong try may have left a high one
    return stock.restock(product=PRODUCT, amount=units).pk


def buy(buyer: str, *, key: str | None = None) -> Receipt:
    """One purchase under `mine`. Raises ShopError."""
    return check_out(Attempt(product=PRODUCT, buyer=buyer, lock=MINE, key=key))


def outcome_of(call: Callable[[], Any]) -> str:
    """`sold`, or the outcome of the refusal."""
    try:
        call()
    except ShopError as error:
        return error.outcome
    return "sold"


def books(sale: int) -> tuple[int, int]:
    """Orders of this sale, and stock left."""
    orders = PurchaseHistory.objects.filter(sale_id=sale).count()
    return orders, Product.objects.get(name=PRODUCT).amount


def killed_between_writes(buyer: str) -> list[str]:
    """A purchase that is killed before its second write. The statements that it had sent."""
    sent: list[str] = []

    def before(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if is_write(sql):
            if sent:
                raise Killed
            sent.append(sql)
        return execute(sql, *rest)

    try:
        with connection.execute_wrapper(before):
            buy(buyer)
    except Killed:
        pass
    finally:
        connection.close()  # as when the process is gone: the database rolls back
    return sent


def is_write(sql: str) -> bool:
    """Whether the statement changes stock or orders: claims of a fence alone do not count."""
    text = " ".join(sql.split()).upper().replace('"', "")
    return text.startswith("INSERT") or (text.startswith("UPDATE") and "AMOUNT" in text)


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
