"""Settlement: write the orders of promises to PostgreSQL, then delete the promises from the stream.

A promise is a unit that Redis has sold to a buyer; its order is not written yet (promises.py).
A batch of promises is read from the stream, their orders are written in one transaction, and after
the commit the promises are deleted. The transaction first locks the products' rows. So two
consumers that read the same promises take turns. Meanwhile no sale is opened or closed, and no
counter is created in Redis. Any number of consumers (`manage.py settle`) may run, because settling
a promise twice has no effect.

If a consumer ends in the middle of a batch, the batch stays on the stream for the next consumer. A
promise of a closed sale is kept, too: its unit is taken from the sale's final stock.
"""

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import redis
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    connection,
    transaction,
)
from django.db.models import F, Q

from shop.lua import lua_script
from shop.models import Product, PurchaseHistory, Sale
from shop.ops.connections import discard_dead_connections
from shop.ops.redis import locks_client
from shop.reserve.promises import (
    BROKEN_STREAM,
    KEY_LIFETIME_MS,
    STRATEGY_NAME,
    STREAM,
    Promise,
    counter_key,
    endings_key,
    store_orders_of_keys,
)
from shop.sale.points import point_reached

logger = logging.getLogger("shop.reserve.settle")

#: A larger batch would lock the products' rows for too long.
MAX_BATCH_PROMISES = 500
#: Interval between batches. The orders of all promises that are made meanwhile share a commit.
BATCH_INTERVAL_SECONDS = 0.05
#: Maximum number of broken promises that Redis stores for an operator. It deletes the oldest.
MAX_BROKEN_ENTRIES = 10_000
ERROR_PAUSE_SECONDS = 0.2
#: Written in SQL, because the ORM takes three times as long for a batch.
INSERT_ORDERS = """
    INSERT INTO purchase_history (amount, lock, id, sale_id, product_name, purchaser,
        purchase_time, idempotency_key, fingerprint, stock_seen)
    SELECT 1, %s, * FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[],
        %s::timestamptz[], %s::text[], %s::text[], %s::int[])
    ON CONFLICT DO NOTHING RETURNING id
"""


class Ending(StrEnum):
    """The result of settling a promise: of writing the order for a unit that Redis has sold.

    KEPT           the order is written, in this batch or in an earlier one
    BROKEN         the order cannot be written: no unit is left, another order has its number, or
                   PostgreSQL refuses the order
    KEY_HAS_ORDER  the buyer's key already has another order, so no second order is written
    """

    KEPT = "kept"
    BROKEN = "broken"
    KEY_HAS_ORDER = "again"


#: The id of a promise on the stream, its sale (0 if unknown) and its ending.
EntryEnding = tuple[str, int, Ending]
#: The Idempotency-Key and the fingerprint of an order.
OrderIdentity = tuple[str | None, str]


def settle_until(stop: threading.Event, *, alive_file: Path | None = None) -> None:
    """Write the orders of promises to PostgreSQL, batch by batch, until `stop` is set.

    A promise is a unit that Redis has sold to a buyer. After an error of Redis or the database, try
    again.

    alive_file  a file that is touched after each batch without an error, for a health check
    """
    while not stop.is_set():
        batch_started_at = time.monotonic()
        try:
            settle_batch()
            if alive_file is not None:
                alive_file.touch()
        except (redis.RedisError, DatabaseError, InterfaceError) as error:
            if not isinstance(error, redis.RedisError):
                discard_dead_connections(error)
                # After some errors discard_dead_connections() leaves the connection open.
                connection.close()
            logger.warning("promises were not settled; trying again: %s", error)
            stop.wait(ERROR_PAUSE_SECONDS)
        stop.wait(max(0.0, batch_started_at + BATCH_INTERVAL_SECONDS - time.monotonic()))


def settle_batch() -> int:
    """Write the orders of the oldest promises, and delete these promises from the stream.

    Return the number of deleted entries. A promise is a unit that Redis has sold to a buyer. After
    redis.RedisError or DatabaseError the promises are still on the stream.
    """
    promises, entry_endings = _read_batch()
    if promises:
        endings = settle_or_split(promises)
        _store_earlier_orders(promises, endings)
        point_reached.send("settled", orders=len(promises))  # a test can stop the thread here
        for promise in promises:
            entry_endings.append((promise.entry, promise.sale, endings[promise.entry]))
    if entry_endings:
        acknowledge(entry_endings)
    return len(entry_endings)


def _read_batch() -> tuple[list[Promise], list[EntryEnding]]:
    """Return the oldest promises on the stream, and the endings of entries that cannot be read.

    A promise is a unit that Redis has sold to a buyer. An entry that cannot be read ends as BROKEN.
    Raises redis.RedisError.
    """
    entries: Any = locks_client().xrange(STREAM, count=MAX_BATCH_PROMISES)
    promises: list[Promise] = []
    unreadable_entries: list[EntryEnding] = []
    for entry, fields in entries:
        try:
            promises.append(Promise.parse(entry, fields[b"seen"], fields[b"order"]))
        except (KeyError, ValueError, TypeError) as error:
            # For example, another version of the shop has written the entry.
            logger.error(
                "promise %s cannot be read (%r): moved to the stream %s",
                entry.decode(),
                error,
                BROKEN_STREAM,
            )
            sale_text = fields.get(b"sale", b"")
            sale_id = int(sale_text) if sale_text.isdigit() else 0
            unreadable_entries.append((entry.decode(), sale_id, Ending.BROKEN))
    return promises, unreadable_entries


def _store_earlier_orders(promises: Sequence[Promise], endings: Mapping[str, Ending]) -> None:
    """Store in Redis the earlier orders of the promises with the ending KEY_HAS_ORDER.

    The Idempotency-Key of such a promise already had an order, so Redis should not have promised
    another unit. After this call a repeated request with the key gets the earlier order.
    """
    keys = [promise.key for promise in promises if endings[promise.entry] is Ending.KEY_HAS_ORDER]
    if keys:
        orders = PurchaseHistory.objects.filter(idempotency_key__in=keys)
        store_orders_of_keys(orders, overwrite=True)


def acknowledge(entry_endings: Sequence[EntryEnding]) -> int:
    """Delete these promises from the stream: their orders are written, or cannot be written.

    A promise is a unit that Redis has sold to a buyer. Redis counts the deleted promises by their
    ending, and moves broken promises to BROKEN_STREAM. Return how many were deleted; other
    consumers may have deleted the rest. After redis.RedisError the promises will be settled again,
    which has no effect.
    """
    keys = [STREAM, BROKEN_STREAM]
    args: list[str | int] = [KEY_LIFETIME_MS, MAX_BROKEN_ENTRIES]
    for entry, sale, ending in entry_endings:
        keys += [counter_key(sale), endings_key(sale)]
        args += [entry, ending.value]
    deleted_count: int = lua_script("settle_promises")(locks_client(), keys, args)
    return deleted_count


# --- the orders of a batch -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with each promise of a batch, before the orders of the batch are written.

    endings            the endings that are known already, by the promise's id on the stream
    promises_to_write  the remaining promises, whose orders are written next
    problems           a log message for each promise that gets no order
    """

    endings: dict[str, Ending] = field(default_factory=dict)
    promises_to_write: list[Promise] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def record_promise_without_order(self, promise: Promise, ending: Ending, problem: str) -> None:
        """Record the ending (BROKEN or KEY_HAS_ORDER) of a promise that gets no order.

        problem  the part of the log message after the number of the order
        """
        self.endings[promise.entry] = ending
        self.problems.append(f"order {promise.order} {problem}")


def decide_endings(
    promises: Sequence[Promise],
    identity_by_number: Mapping[int, OrderIdentity],
    units_left: Mapping[int, int],
) -> Decision:
    """Decide which promises get an order. If the units do not suffice, the first promises get one.

    A promise is a unit that Redis has sold to a buyer. This function only decides: it makes no
    request to Redis or to the database.

    identity_by_number  order number -> key and fingerprint, for the orders in the database
    units_left          sale -> units left
    """
    decision = Decision()
    remaining_units = defaultdict(int, units_left)  # a sale that does not exist has no units
    number_by_key = {
        key: number for number, (key, _) in identity_by_number.items() if key is not None
    }
    for promise in promises:
        identity = identity_by_number.get(promise.order)
        if identity == (promise.key, promise.fingerprint):
            decision.endings[promise.entry] = Ending.KEPT
        elif identity is not None:
            problem = "was promised, but another buyer has an order with this number"
            decision.record_promise_without_order(promise, Ending.BROKEN, problem)
        elif promise.key in number_by_key:
            number = number_by_key[promise.key]
            problem = f"was promised, but its Idempotency-Key already has order {number}"
            decision.record_promise_without_order(promise, Ending.KEY_HAS_ORDER, problem)
        elif remaining_units[promise.sale] < 1:
            problem = (
                f"of sale {promise.sale} was promised, but no unit is left: refund the buyer or "
                f"deliver from elsewhere; the stream {BROKEN_STREAM} has the buyer and the key"
            )
            decision.record_promise_without_order(promise, Ending.BROKEN, problem)
        else:
            remaining_units[promise.sale] -= 1
            decision.promises_to_write.append(promise)
            # If the batch has a second promise with this key, that one must not get an order.
            if promise.key is not None:
                number_by_key[promise.key] = promise.order
    return decision


def settle_or_split(promises: Sequence[Promise]) -> dict[str, Ending]:
    """Write the orders of promises as settle() does, even if PostgreSQL refuses some orders.

    A promise is a unit that Redis has sold to a buyer. If PostgreSQL refuses a batch, its halves
    are settled separately, and so on, down to single orders. If a single order is refused, its
    promise has the ending BROKEN. Return a dict: id of the promise on the stream -> ending. Raises
    DatabaseError for errors other than a refusal.
    """
    try:
        return settle(promises)
    except (DataError, IntegrityError) as error:
        if len(promises) == 1:
            promise = promises[0]
            logger.error(
                "order %s was promised, but PostgreSQL refuses it: %s", promise.order, error
            )
            return {promise.entry: Ending.BROKEN}
    middle = len(promises) // 2
    return settle_or_split(promises[:middle]) | settle_or_split(promises[middle:])


@transaction.atomic(durable=True)
def settle(promises: Sequence[Promise]) -> dict[str, Ending]:
    """Write the orders of promises to PostgreSQL, in one transaction.

    A promise is a unit that Redis has sold to a buyer. Return a dict: id of the promise on the
    stream -> ending. After a DatabaseError nothing was written, unless the error came from the
    COMMIT. In that case all orders may have been written.

    promises  oldest first; if the units do not suffice, the first get an order
    """
    units_left = _lock_products_and_read_units(promises)
    decision = decide_endings(promises, _read_order_identities(promises), units_left)
    for problem in decision.problems:
        logger.error("%s", problem)
    endings = dict(decision.endings)
    written_numbers: set[int] = set()
    if decision.promises_to_write:
        written_numbers = _insert_orders(decision.promises_to_write)
    kept_promises = []
    for promise in decision.promises_to_write:
        if promise.order in written_numbers:
            endings[promise.entry] = Ending.KEPT
            kept_promises.append(promise)
        else:
            # The INSERT skipped the order (ON CONFLICT): after _read_order_identities() a purchase
            # under another strategy has inserted an order with this key.
            endings[promise.entry] = Ending.KEY_HAS_ORDER
    _take_units(kept_promises)
    point_reached.send("settling", orders=len(promises))  # a test can stop the thread here
    return endings


def _lock_products_and_read_units(promises: Sequence[Promise]) -> dict[int, int]:
    """Lock the rows of the promises' products, and return a dict: sale -> units left.

    The dict contains every sale of the promises, open or closed. A promise is a unit that Redis has
    sold to a buyer.
    """
    products = Product.objects.select_for_update().order_by("pk")
    product_rows = products.filter(pk__in={promise.product for promise in promises})
    # The key None is a product without an open sale; no promise uses it.
    units_left: dict[Any, int] = dict(product_rows.values_list("sale", "amount"))
    sales = {promise.sale for promise in promises}
    closed_sales = Sale.objects.filter(pk__in=sales, closed_at__isnull=False)
    for sale, final_stock in closed_sales.values_list("pk", "final_stock"):
        units_left[sale] = final_stock or 0
    return units_left


def _read_order_identities(promises: Sequence[Promise]) -> dict[int, OrderIdentity]:
    """Find the orders in the database that have the number or the key of one of these promises.

    Return a dict: order number -> (key, fingerprint).
    """
    numbers = [promise.order for promise in promises]
    keys = [promise.key for promise in promises if promise.key is not None]
    orders = PurchaseHistory.objects.filter(Q(pk__in=numbers) | Q(idempotency_key__in=keys))
    return {order.pk: (order.idempotency_key, order.fingerprint) for order in orders}


def _insert_orders(promises: Sequence[Promise]) -> set[int]:
    """Insert the orders of these promises, and return the numbers of the inserted orders.

    A promise is a unit that Redis has sold to a buyer. It gets no order here if the database
    already has an order with its number or its key.
    """
    rows = [
        (
            promise.order,
            promise.sale,
            promise.product_name,
            promise.buyer,
            datetime.fromtimestamp(promise.made_at, UTC),
            promise.key,
            promise.fingerprint,
            promise.stock_seen,
        )
        for promise in promises
    ]
    parameters: list[str | list[Any]] = [STRATEGY_NAME]
    parameters += [list(column) for column in zip(*rows, strict=True)]
    with connection.cursor() as cursor:
        cursor.execute(INSERT_ORDERS, parameters)
        return {number for (number,) in cursor.fetchall()}


def _take_units(promises: Sequence[Promise]) -> None:
    """Subtract the promised units from the product's row, or from a closed sale's final stock."""
    for sale, units in Counter(promise.sale for promise in promises).items():
        if not Product.objects.filter(sale=sale).update(amount=F("amount") - units):
            Sale.objects.filter(pk=sale).update(final_stock=F("final_stock") - units)
