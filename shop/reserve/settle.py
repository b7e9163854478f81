"""Settling: reads promises off the stream in batches, writes the orders of a batch in one
transaction, and takes them off the stream after its commit.

The rows of the products are locked first, so that two consumers with the same promises come one
after the other, and no sale is opened, closed or begun meanwhile. Any number of consumers may run:
settling twice does nothing, and one that ends in the middle of a batch leaves it on the stream for
the next. A promise of a sale that was closed before is still kept: its unit is taken from what that
sale had left.
"""

import logging
import threading
import time
from collections import defaultdict
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
    """Settle until `stop` is set; it ends after its batch. An error of a server is logged and tried
    again.

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
    sales = list(dict.fromkeys(sale for _, sale, _ in ended))
    keys = [key for sale in sales for key in (count_key(sale), books_key(sale))]
    args: list[str | int] = [KEEP, MOST_BROKEN]
    for entry, sale, ending in ended:
        args += [entry, sales.index(sale) + 1, ending.value]
    taken: int = lua("settled")(locks_client(), [STREAM, BROKEN, *keys], args)
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
    sales: dict[int, list[Promise]] = defaultdict(list)
    for promise in promises:
        sales[promise.sale].append(promise)
    products = Product.objects.select_for_update().order_by("pk")
    room: dict[int | None, int | None] = dict(
        products.filter(pk__in={one.product for one in promises}).values_list("sale", "amount")
    )
    closed = Sale.objects.filter(pk__in=sales, closed_at__isnull=False)
    room |= dict(closed.values_list("pk", "final_stock"))
    endings: dict[str, Ending] = {}
    for sale, wanted in sales.items():
        endings |= _settle_sale(sale, wanted, room.get(sale) or 0)
    point("settling", orders=len(promises))
    return endings


def _settle_sale(sale: int, wanted: Sequence[Promise], room: int) -> dict[str, Ending]:
    endings = _known(wanted)
    new = [promise for promise in wanted if promise.entry not in endings]
    keep, broken = new[: max(0, room)], new[max(0, room) :]
    written = _write(keep) if keep else set()
    for promise in keep:  # a key that another strategy has sold to meanwhile
        endings[promise.entry] = Ending.KEPT if promise.order in written else Ending.AGAIN
    for promise in broken:
        endings[promise.entry] = Ending.BROKEN
        logger.error(
            "order %s of sale %s was promised, and no unit is left: %s", promise.order, sale,
            "buyer and key are on the stream of the broken; refund, or deliver from elsewhere",
        )  # fmt: skip
    if written and not Product.objects.filter(sale=sale).update(amount=F("amount") - len(written)):
        Sale.objects.filter(pk=sale).update(final_stock=F("final_stock") - len(written))
    return endings


def _known(wanted: Sequence[Promise]) -> dict[str, Ending]:
    """The promises that have an order already, or cannot have theirs."""
    numbers = [promise.order for promise in wanted]
    keys = [promise.key for promise in wanted if promise.key is not None]
    orders = PurchaseHistory.objects.filter(Q(pk__in=numbers) | Q(idempotency_key__in=keys))
    of_number = {}
    of_key: dict[str | None, int] = {}
    for number, key, fingerprint in orders.values_list("pk", "idempotency_key", "fingerprint"):
        of_number[number] = (key, fingerprint)
        of_key[key] = number
    found: dict[str, Ending] = {}
    for promise in wanted:
        if promise.order in of_number:
            same = of_number[promise.order] == (promise.key, promise.fingerprint)
            found[promise.entry] = Ending.KEPT if same else Ending.BROKEN
            if not same:
                logger.error("order %s was promised, and is another buyer's", promise.order)
        elif promise.key is None:
            continue
        elif promise.key in of_key:
            found[promise.entry] = Ending.AGAIN
            logger.error(
                "order %s was promised to a key that has order %s", promise.order,
                of_key[promise.key],
            )  # fmt: skip
        else:
            of_key[promise.key] = promise.order  # of two in one batch the first has the order
    return found


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
