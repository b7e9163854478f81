"""Writes the orders of promises, a batch in one transaction. Settling twice does nothing.

The rows of the products are locked first, so that two consumers with the same promises come one
after the other, and no sale is opened, closed or begun meanwhile. A promise of a sale that was
closed before is still kept: its unit is taken from what that sale had left.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from django.db import DataError, IntegrityError, connection, transaction

from shop.reserve.promises import LOCK, Promise
from shop.sale.points import point

logger = logging.getLogger("shop.reserve.settle")

LOCK_PRODUCTS = "SELECT id, sale_id, amount FROM product WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
CLOSED = "SELECT id, final_stock FROM shop_sale WHERE id = ANY(%s) AND closed_at IS NOT NULL"
KNOWN = """
    SELECT id, idempotency_key, fingerprint FROM purchase_history
    WHERE id = ANY(%s) OR idempotency_key = ANY(%s)
"""
WRITE = """
    INSERT INTO purchase_history (id, product_name, purchaser, purchase_time, idempotency_key,
        fingerprint, stock_seen, sale_id, amount, lock)
    SELECT *, %s, 1, %s
    FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::timestamptz[], %s::text[], %s::text[],
        %s::int[])
    ON CONFLICT DO NOTHING RETURNING id
"""
TAKE = "UPDATE product SET amount = amount - %s WHERE id = %s AND sale_id = %s"
TAKE_FROM_CLOSED = "UPDATE shop_sale SET final_stock = final_stock - %s WHERE id = %s"


class Ending(StrEnum):
    """What became of a promise.

    KEPT    its order is written, now or before
    BROKEN  no unit was left, another order has its number, or PostgreSQL refuses it: the buyer was
            promised and has none
    AGAIN   its buyer's key has another order; no unit was taken
    """

    KEPT = "kept"
    BROKEN = "broken"
    AGAIN = "again"


def settle_each(promises: Sequence[Promise]) -> dict[str, Ending]:
    """As `settle`, and an order that PostgreSQL refuses for what is in it is broken, and no other
    with it. Raises DatabaseError."""
    try:
        return settle(promises)
    except (DataError, IntegrityError) as error:
        if len(promises) == 1:
            (one,) = promises
            logger.error("order %s was promised, and is refused: %s", one.order, error)
            return {one.entry: Ending.BROKEN}
    half = len(promises) // 2
    return settle_each(promises[:half]) | settle_each(promises[half:])


@transaction.atomic(durable=True)
def settle(promises: Sequence[Promise]) -> dict[str, Ending]:
    """Write the orders of these promises, oldest first. Returns what became of each, by its entry.
    Raises DatabaseError, and then nothing is written (or, at the commit, perhaps all)."""
    sales: dict[int, list[Promise]] = defaultdict(list)
    for promise in promises:
        sales[promise.sale].append(promise)
    products = _rows(LOCK_PRODUCTS, sorted({promise.product for promise in promises}))
    room = {sale: amount for _, sale, amount in products if sale is not None}
    open_sales = set(room)
    room |= dict(_rows(CLOSED, list(sales)))
    endings: dict[str, Ending] = {}
    for sale, wanted in sales.items():
        endings |= _settle_sale(sale, wanted, room.get(sale, 0), is_open=sale in open_sales)
    point("settling", orders=len(promises))
    return endings


def _settle_sale(
    sale: int, wanted: Sequence[Promise], room: int, *, is_open: bool
) -> dict[str, Ending]:
    endings = _known(wanted)
    new = [promise for promise in wanted if promise.entry not in endings]
    keep, broken = new[: max(0, room)], new[max(0, room) :]
    written = _write(sale, keep)
    for promise in keep:  # a key that another strategy has sold to meanwhile
        endings[promise.entry] = Ending.KEPT if promise.order in written else Ending.AGAIN
    for promise in broken:
        endings[promise.entry] = Ending.BROKEN
        logger.error(
            "order %s of sale %s was promised, and no unit is left: %s", promise.order, sale,
            "buyer and key are on the stream of the broken; refund, or deliver from elsewhere",
        )  # fmt: skip
    if written:
        _run(TAKE if is_open else TAKE_FROM_CLOSED, _taken(sale, wanted[0], written, is_open))
    return endings


def _taken(sale: int, one: Promise, written: set[int], is_open: bool) -> list[int]:
    return [len(written), one.product, sale] if is_open else [len(written), sale]


def _known(wanted: Sequence[Promise]) -> dict[str, Ending]:
    """The promises that have an order already, or cannot have theirs."""
    numbers = [promise.order for promise in wanted]
    keys = [promise.key for promise in wanted if promise.key is not None]
    of_number: dict[int, tuple[str | None, str]] = {}
    of_key: dict[str, int] = {}
    for number, key, fingerprint in _rows(KNOWN, numbers, keys):
        of_number[number] = (key, fingerprint)
        if key is not None:
            of_key[key] = number
    found: dict[str, Ending] = {}
    for promise in wanted:
        if promise.order in of_number:
            same = of_number[promise.order] == (promise.key, promise.fingerprint)
            found[promise.entry] = Ending.KEPT if same else Ending.BROKEN
            if not same:
                logger.error("order %s was promised, and is another buyer's", promise.order)
        elif promise.key in of_key:
            found[promise.entry] = Ending.AGAIN
            logger.error(
                "order %s was promised to a key that has order %s", promise.order,
                of_key[promise.key],
            )  # fmt: skip
        elif promise.key is not None:
            of_key[promise.key] = promise.order  # of two in one batch the first has the order
    return found


def _write(sale: int, keep: Sequence[Promise]) -> set[int]:
    """Insert the orders. Returns the numbers of those that were not there."""
    if not keep:
        return set()
    columns = [
        [promise.order for promise in keep],
        [promise.product_name for promise in keep],
        [promise.buyer for promise in keep],
        [datetime.fromtimestamp(promise.made_at, UTC) for promise in keep],
        [promise.key for promise in keep],
        [promise.fingerprint for promise in keep],
        [promise.stock_seen for promise in keep],
    ]
    return {number for (number,) in _rows(WRITE, sale, LOCK, *columns)}


def _rows(statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def _run(statement: str, values: Sequence[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
