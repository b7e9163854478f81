"""Units that Redis has promised to buyers, and whose orders are written afterwards.

One script takes a unit and puts the promise on a stream; `manage.py settle` writes the orders
(settle.py). A sale's counter is started under the lock of its product's row: meanwhile no promise
is settled and no sale is opened or closed.
"""

import json
import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, cast

import redis
from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet

from shop.errors import Behind, CommitUnknown, KeyReused, SaleClosed, SaleOver, SoldOut
from shop.lua import lua
from shop.models import PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale.purchase import Attempt, Receipt, Stock, read_stock

logger = logging.getLogger("shop.reserve.promises")

#: Milliseconds that a sale's counter is kept after its last buyer. A restock has a new one.
KEEP = 24 * 3600 * 1000
#: The strategy that sells like this.
LOCK = "reserve"
#: All keys are in one cluster slot: one script takes the unit and writes to the stream.
PREFIX = f"stock:{{{LOCK}}}"
STREAM = f"{PREFIX}:promises"
#: Entries of that stream whose order nobody will write, for the operator who makes it good: the
#: last MOST_BROKEN or some more. `entry` is the id that each had.
BROKEN = f"{PREFIX}:broken"
#: Order numbers that one query draws.
BLOCK = 200
REFUSED = {b"sold out": SoldOut, b"behind": Behind}


@dataclass(frozen=True, slots=True)
class Promise:
    """An entry of the stream: a unit that was promised, and the order that is written for it.

    order       the order's number
    stock_seen  units that there were before it
    entry       its id on the stream: milliseconds of Redis's clock, and a number
    """

    order: int
    sale: int
    product: int
    product_name: str
    buyer: str
    key: str | None
    fingerprint: str
    stock_seen: int
    entry: str

    @property
    def made_at(self) -> float:
        """When it was made: seconds since 1970 by Redis's clock."""
        return int(self.entry.partition("-")[0]) / 1000

    @classmethod
    def parse(cls, entry: bytes, seen: bytes, order: bytes) -> Self:
        """An entry of the stream. Raises ValueError or TypeError."""
        found = cls(**json.loads(order) | {"stock_seen": int(seen), "entry": entry.decode()})
        numbers = (found.order, found.sale, found.product)
        words = (found.product_name, found.buyer, found.key or "", found.fingerprint)
        if not all(type(one) is int for one in numbers) or not all(type(w) is str for w in words):
            raise TypeError("an order's numbers are whole, and its words are text")
        return found


def count_key(sale: int) -> str:
    """The key that counts the units of a sale that nobody was promised."""
    return f"{PREFIX}:{sale}"


def books_key(sale: int) -> str:
    """The key that counts how the promises of a sale ended."""
    return f"{PREFIX}:{sale}:books"


def attempt_key(holder: str) -> str:
    """The key of an attempt's promise, whatever the sale: an Idempotency-Key has one order."""
    return f"{PREFIX}:by:{holder}"


def in_use() -> bool:
    """Whether this shop may have promised anything: else Redis is not asked."""
    return bool(settings.SHOP_DEMO or settings.SHOP_LOCK == LOCK)


def promised(sale: int) -> tuple[int | None, list[Promise]]:
    """Units of a sale that nobody was promised, None where Redis does not sell it; and the promises
    that are not settled, but for those that nobody can read. Raises redis.RedisError."""
    left, entries = lua("promised")(locks_client(), [count_key(sale), STREAM], [sale])
    found = []
    for entry in entries:
        with suppress(ValueError, TypeError):  # a consumer sets it aside
            found.append(Promise.parse(*entry))
    return (int(left) if left else None), found


# --- a sale --------------------------------------------------------------------------------------

#: Product -> its sale, as this process saw it last. Redis does not sell one that is over.
_open: dict[str, Stock] = {}
_opening = threading.Lock()


def open_sale(product: str, *, instead_of: Stock | None = None) -> Stock:
    """Have Redis sell what PostgreSQL says is left of the product's sale, unless it does already;
    with what it may have forgotten: which keys have bought. Returns the sale.

    instead_of  the sale that turned out not to be open; if another one is known by now, it is used

    Raises UnknownProduct, redis.RedisError, DatabaseError.
    """
    with _opening:
        known = _open.get(product)
        if known is not None and known is not instead_of:
            return known
        _open.pop(product, None)
        with transaction.atomic(durable=True):
            stock = read_stock(Attempt(product, buyer=""), for_update=True)
            left, waiting = promised(stock.sale_id)
            if left is None:
                _start_counter(stock, waiting)
        _open[product] = stock
        return stock


def _start_counter(stock: Stock, waiting: list[Promise]) -> None:
    """Start the counter of a sale. Its product's row is locked."""
    orders = PurchaseHistory.objects.filter(sale=stock.sale_id)
    remember(orders)
    written = set(orders.values_list("pk", flat=True))
    unwritten = [one for one in waiting if one.order not in written]
    pipeline = locks_client().pipeline(transaction=False)
    for one in unwritten:
        if one.key is not None:
            brief = f"{one.order} {one.sale} {one.fingerprint} {one.stock_seen}"
            pipeline.set(attempt_key(one.key), brief, px=KEEP, nx=True)
    left = max(0, stock.amount - len(unwritten))
    pipeline.set(count_key(stock.sale_id), left, px=KEEP, nx=True)
    pipeline.execute()


def remember(orders: QuerySet[PurchaseHistory], *, instead: bool = False) -> None:
    """Tell Redis which keys have bought, and what. Raises redis.RedisError, DatabaseError.

    instead  also of keys that it knows otherwise
    """
    pipeline = locks_client().pipeline(transaction=False)
    for key, *brief in orders.exclude(idempotency_key=None).values_list(
        "idempotency_key", "pk", "sale", "fingerprint", "stock_seen"
    ):
        pipeline.set(attempt_key(str(key)), " ".join(map(str, brief)), px=KEEP, nx=not instead)
    pipeline.execute()


def close_sale(sale: int) -> int:
    """Promise nothing more of this sale. Call it while its product's row is locked: nobody starts
    it again before the transaction has ended. Returns 0: its units are in the product's row.
    Raises redis.RedisError, but in a demo."""
    if in_use():
        try:
            locks_client().delete(count_key(sale))
        except redis.RedisError as error:
            if not settings.SHOP_DEMO:
                raise
            logger.warning("Redis may still sell sale %s: %s", sale, error)
    return 0


# --- a promise ----------------------------------------------------------------------------------


def promise(attempt: Attempt) -> Receipt:
    """Promise one unit to this attempt. One key has one promise, in whichever sale, for KEEP: the
    receipt is `replayed` if it had been promised before.

    Raises SoldOut, SaleOver, SaleClosed, UnknownProduct, KeyReused, Behind (too many are unsettled,
    or one for too long) or redis.RedisError: nothing was promised; CommitUnknown: it may have been.
    """
    holder = attempt.holder
    stock = _open.get(attempt.product) or open_sale(attempt.product)
    for _ in range(2):  # the sale that is known may be over
        if attempt.sale not in (None, stock.sale_id):
            stock = open_sale(attempt.product, instead_of=stock)
        if attempt.sale not in (None, stock.sale_id):
            held = locks_client().get(attempt_key(holder))
            if held is None:
                raise SaleOver
            return _receipt(attempt, cast(bytes, held), replayed=True)
        answer, brief = _ask(attempt, holder, stock)
        if brief:
            return _receipt(attempt, brief, replayed=answer == b"held")
        if answer in REFUSED:
            raise REFUSED[answer]
        stock = open_sale(attempt.product, instead_of=stock)
    raise SaleClosed


def _ask(attempt: Attempt, holder: str, stock: Stock) -> list[bytes]:
    """The answer of promise.lua."""
    client = locks_client()
    # Taken by itself: where Redis cannot be reached, nothing was asked.
    client.connection_pool.release(client.connection_pool.get_connection())
    order = {
        "order": _order_number(),
        "sale": stock.sale_id,
        "product": stock.product_id,
        "product_name": attempt.product,
        "buyer": attempt.buyer,
        "key": attempt.key,
        "fingerprint": attempt.fingerprint,
    }
    keys = [count_key(stock.sale_id), attempt_key(holder), STREAM]
    brief = f"{order['order']} {stock.sale_id} {attempt.fingerprint}"
    args: list[str | int] = [brief, stock.sale_id, json.dumps(order)]
    args += [settings.SHOP_MOST_UNSETTLED, KEEP, round(settings.SHOP_LONGEST_UNSETTLED * 1000)]
    try:
        answer: list[bytes] = lua("promise")(client, keys, args)
    except redis.ResponseError:  # it refuses writes, or is busy
        raise
    except redis.RedisError as error:
        logger.warning("%s: no reply to a promise: %s", LOCK, error)
        raise CommitUnknown from error
    return answer


def _receipt(attempt: Attempt, brief: bytes, *, replayed: bool) -> Receipt:
    """What this attempt was promised. Raises KeyReused if it was another request's."""
    order, sale, fingerprint, seen = brief.decode().split()
    if fingerprint != attempt.fingerprint:
        raise KeyReused
    return Receipt(int(order), int(sale), int(seen), replayed)


_numbers: list[int] = []
_drawing = threading.Lock()


def _order_number() -> int:
    """A number that no other order ever has, from PostgreSQL's sequence. Raises DatabaseError.

    A process draws a block at a time, so that a purchase needs no query. Numbers that no order gets
    are gaps in the sequence, as after every rollback.
    """
    with _drawing:
        if not _numbers:
            sequence = f"{PurchaseHistory._meta.db_table}_id_seq"
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT nextval(%s::regclass) FROM generate_series(1, %s)", [sequence, BLOCK]
                )
                _numbers.extend(number for (number,) in reversed(cursor.fetchall()))
        return _numbers.pop()
