"""Settling: reads promises off the stream in batches, writes the orders of a batch in one
transaction, and takes them off the stream after its commit.

The rows of the products are locked first, so that two consumers with the same promises come one
after the other, and no sale is opened, closed or begun meanwhile. Any number of consumers may run:
settling twice does nothing, and one that ends in the middle of a batch leaves it on the stream for
the next. A promise of a sale that was closed before is kept: its unit is taken from what was left.
"""

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
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

from shop.lua import lua
from shop.models import Product, PurchaseHistory, Sale
from shop.ops.connections import discard_dead
from shop.ops.redis import locks_client
from shop.reserve.promises import (
    BROKEN,
    KEEP,
    LOCK,
    STREAM,
    Promise,
    books_key,
    count_key,
    remember,
)
from shop.sale.points import point

logger = logging.getLogger("shop.reserve.settle")

#: Promises in one transaction at most.
BATCH = 500
#: Seconds from one batch to the next at least: what comes meanwhile shares a commit.
EVERY = 0.05
#: Broken promises that are kept to be made good.
MOST_BROKEN = 10_000
#: Seconds before trying again after an error.
PAUSE = 0.2
#: As SQL: a batch costs the ORM three times as much.
WRITE = """
    INSERT INTO purchase_history (amount, lock, id, sale_id, product_name, purchaser,
        purchase_time, idempotency_key, fingerprint, stock_seen)
    SELECT 1, %s, * FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[],
        %s::timestamptz[], %s::text[], %s::text[], %s::int[])
    ON CONFLICT DO NOTHING RETURNING id
"""


class Ending(StrEnum):
    """How a promise ended.

    KEPT    its order is written, now or before
    BROKEN  no unit was left, another order has its number, or PostgreSQL refuses it: the buyer was
            promised and has none
    AGAIN   its buyer's key has another order; no unit was taken
    """

    KEPT = "kept"
    BROKEN = "broken"
    AGAIN = "again"


#: The id of an entry, its sale (0: nobody knows) and how it ended.
Ended = tuple[str, int, Ending]


def run(stop: threading.Event, *, alive: Path | None = None) -> None:
    """Settle until `stop` is set, to the end of a batch. Logs a server's error and tries again.

    alive  a file that is touched after each look at the stream that met no error
    """
    while not stop.is_set():
        began = time.monotonic()
        try:
            step()
            if alive is not None:
                alive.touch()
        except (redis.RedisError, DatabaseError, InterfaceError) as error:
            if not isinstance(error, redis.RedisError):
                discard_dead(error)
                connection.close()
            logger.warning("promises wait to be settled: %s", error)
            stop.wait(PAUSE)
        stop.wait(max(0.0, began + EVERY - time.monotonic()))


def step() -> int:
    """Settle the oldest batch. Returns how many promises it had. Raises redis.RedisError,
    DatabaseError: then the batch is still there."""
    entries: Any = locks_client().xrange(STREAM, count=BATCH)
    promises: list[Promise] = []
    ended: list[Ended] = []
    for entry, fields in entries:
        try:
            promises.append(Promise.parse(entry, fields[b"seen"], fields[b"order"]))
        except (KeyError, ValueError, TypeError) as error:  # another version's, or not a node's
            logger.error("promise %s cannot be read (%r): it is set aside", entry.decode(), error)
            sale = fields.get(b"sale", b"")
            ended.append((entry.decode(), int(sale) if sale.isdigit() else 0, Ending.BROKEN))
    if promises:
        endings = settle_each(promises)
        again = [one.key for one in promises if endings[one.entry] is Ending.AGAIN]
        if again:  # from now on these keys are answered with the order that they have
            remember(PurchaseHistory.objects.filter(idempotency_key__in=again), instead=True)
        point("settled", orders=len(promises))
        ended += [(one.entry, one.sale, endings[one.entry]) for one in promises]
    if ended:
        acknowledge(ended)
    return len(ended)


def acknowledge(ended: list[Ended]) -> int:
    """Take settled promises off the stream. Returns how many were still on it. Raises
    redis.RedisError, and then they are settled once more, which does nothing."""
    keys, args = [STREAM, BROKEN], list[str | int]([KEEP, MOST_BROKEN])
    for entry, sale, ending in ended:
        keys += [count_key(sale), books_key(sale)]
        args += [entry, ending.value]
    taken: int = lua("settled")(locks_client(), keys, args)
    return taken


# --- the orders of a batch -----------------------------------------------------------------------


def settle_each(promises: Sequence[Promise]) -> dict[str, Ending]:
    """As `settle`; but an order that PostgreSQL refuses for what is in it is broken by itself, and
    no other with it. Raises DatabaseError."""
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
    """Write the orders of these promises, oldest first. Returns how each ended, by its entry.
    Raises DatabaseError, and then nothing is written (or, at the commit, perhaps all)."""
    room = _lock_what_is_left(promises)
    numbers = [promise.order for promise in promises]
    keys = [promise.key for promise in promises if promise.key is not None]
    orders = PurchaseHistory.objects.filter(Q(pk__in=numbers) | Q(idempotency_key__in=keys))
    known = {order.pk: (order.idempotency_key, order.fingerprint) for order in orders}
    of_key = {key: number for number, (key, _) in known.items() if key is not None}
    endings: dict[str, Ending] = {}
    keep: list[Promise] = []
    for promise in promises:
        if promise.order in known:
            same = known[promise.order] == (promise.key, promise.fingerprint)
            endings[promise.entry] = Ending.KEPT if same else Ending.BROKEN
            if not same:
                logger.error("order %s was promised, and is another buyer's", promise.order)
        elif promise.key is not None and promise.key in of_key:
            endings[promise.entry] = Ending.AGAIN
            other = of_key[promise.key]
            logger.error("order %s was promised to a key that has order %s", promise.order, other)
        elif room[promise.sale] < 1:
            endings[promise.entry] = Ending.BROKEN
            logger.error(
                "order %s of sale %s was promised, and no unit is left: %s", promise.order,
                promise.sale,
                "buyer and key are on the stream of the broken; refund, or deliver from elsewhere",
            )  # fmt: skip
        else:
            room[promise.sale] -= 1
            keep.append(promise)
            if promise.key is not None:  # of two in one batch the first has the order
                of_key[promise.key] = promise.order
    written = _write(keep) if keep else set()
    for promise in keep:  # a key that another strategy has sold to meanwhile
        endings[promise.entry] = Ending.KEPT if promise.order in written else Ending.AGAIN
    sale_of = {promise.order: promise.sale for promise in keep}
    for sale, sold in Counter(sale_of[order] for order in sorted(written)).items():
        if not Product.objects.filter(sale=sale).update(amount=F("amount") - sold):
            Sale.objects.filter(pk=sale).update(final_stock=F("final_stock") - sold)
    point("settling", orders=len(promises))
    return endings


def _lock_what_is_left(promises: Sequence[Promise]) -> dict[Any, Any]:
    """Lock the rows of the products; the units left of each sale, those that are closed too."""
    products = Product.objects.select_for_update().order_by("pk")
    on_sale = products.filter(pk__in={promise.product for promise in promises})
    room: dict[Any, Any] = defaultdict(int, on_sale.values_list("sale", "amount"))
    sales = {promise.sale for promise in promises}
    closed = Sale.objects.filter(pk__in=sales, closed_at__isnull=False)
    room.update(closed.values_list("pk", "final_stock"))
    return room


def _write(keep: Sequence[Promise]) -> set[int]:
    """Insert the orders. Returns the numbers of those that were not there."""
    columns = zip(*(
        (
            *(one.order, one.sale, one.product_name, one.buyer),
            *(datetime.fromtimestamp(one.made_at, UTC), one.key, one.fingerprint, one.stock_seen),
        )
        for one in keep
    ), strict=True)  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(WRITE, [LOCK, *map(list, columns)])
        return {number for (number,) in cursor.fetchall()}
