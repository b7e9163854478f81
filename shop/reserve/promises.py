"""Promises: units that Redis has sold to buyers, and whose orders are not written yet.

Redis has a counter for each sale: the number of units that are not promised. One script decrements
the counter and appends a promise to a Redis stream; the buyer is answered `sold`. `manage.py
settle` then writes the orders of the promises on the stream to PostgreSQL (settle.py). This is
called settling.

If Redis has no counter for a sale, the next buyer starts it, from the stock in PostgreSQL.
Meanwhile the row of the product is locked, so that no promise is settled and no sale is opened or
closed.
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

from shop.errors import (
    CommitUnknown,
    KeyReused,
    SaleClosed,
    SaleOver,
    SettlementBehind,
    SoldOut,
    Unavailable,
)
from shop.lua import lua_script
from shop.models import PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale.purchase import Attempt, Receipt, Stock, read_stock

logger = logging.getLogger("shop.reserve.promises")

#: Lifetime of a sale's counter, and of the promise of an Idempotency-Key, after their last use. A
#: buyer who repeats the Idempotency-Key later is promised a second order, which is never written
#: (settle.Ending.KEY_HAS_ORDER).
KEY_LIFETIME_MS = 24 * 3600 * 1000
STRATEGY_NAME = "reserve"
#: The braces put all keys into one cluster slot, because one script uses several of them.
KEY_PREFIX = f"stock:{{{STRATEGY_NAME}}}"
STREAM = f"{KEY_PREFIX}:promises"
#: The stream of promises whose order cannot be written: an operator has to refund the buyers. The
#: field `entry` is the id that the promise had on STREAM.
BROKEN_STREAM = f"{KEY_PREFIX}:broken"
ORDER_NUMBERS_PER_QUERY = 200
#: The word that promise.lua returns -> the error for the buyer. Its other words are `promised`,
#: `held` (the key already has a promise) and `not open` (Redis has no counter for the sale).
ERROR_BY_SCRIPT_ANSWER = {b"sold out": SoldOut, b"behind": SettlementBehind}


@dataclass(frozen=True, slots=True)
class Promise:
    """A unit that Redis has sold to a buyer, with the columns of its order, which is written later.

    It is an entry of STREAM.

    order       number of the order
    sale        number of the sale
    product     id of the product's row
    key         Idempotency-Key, or None
    stock_seen  units left before this promise was made
    entry       id on the stream: milliseconds of Redis's clock, and a sequence number
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
        """Time of the promise, in seconds since 1970 by Redis's clock."""
        return int(self.entry.partition("-")[0]) / 1000

    @classmethod
    def parse(cls, entry: bytes, stock_seen: bytes, order_json: bytes) -> Self:
        """Return the promise in an entry of the stream.

        entry       the id of the entry
        order_json  a JSON object with the fields of a promise except `entry` and `stock_seen`

        Raises ValueError or TypeError if a field is malformed, missing or unknown.
        """
        fields = json.loads(order_json)
        fields |= {"stock_seen": int(stock_seen), "entry": entry.decode()}
        promise = cls(**fields)
        for number in (promise.order, promise.sale, promise.product):
            if type(number) is not int:  # True is an int, too
                raise TypeError(f"order, sale and product must be integers, not {number!r}")
        for text in (promise.product_name, promise.buyer, promise.key or "", promise.fingerprint):
            if type(text) is not str:
                raise TypeError(f"names, key and fingerprint must be strings, not {text!r}")
        return promise


def counter_key(sale: int) -> str:
    """Return the Redis key of a sale's counter: the number of its units that are not promised."""
    return f"{KEY_PREFIX}:{sale}"


def endings_key(sale: int) -> str:
    """Return the Redis key of a hash that counts a sale's promises, by ending and by lag.

    A promise is a unit that Redis has sold to a buyer. The fields are the values of settle.Ending,
    such as `kept` for a promise with an order, and the lags that settle_promises.lua writes.
    """
    # The name `books` is kept, although the hash has endings: running shops have keys of this name.
    return f"{KEY_PREFIX}:{sale}:books"


def promise_key(reservation_id: str) -> str:
    """Return the Redis key of the unit that was promised to an attempt.

    The sale is not a part of the Redis key, because an Idempotency-Key has at most one order in all
    sales.

    reservation_id  the Idempotency-Key of the attempt or, without one, a random id
    """
    return f"{KEY_PREFIX}:by:{reservation_id}"


def can_have_promises() -> bool:
    """Return whether this shop may have promised units in Redis, under the strategy `reserve`.

    If it cannot have promised any, the callers of this function make no request to Redis.
    """
    return bool(settings.SHOP_DEMO or settings.SHOP_LOCK == STRATEGY_NAME)


def read_promises(sale: int) -> tuple[int | None, list[Promise]]:
    """Return a sale's number of unpromised units, and its promises that are not settled.

    A promise is a unit that Redis has sold to a buyer. The number is None if Redis has no counter
    for the sale. Some of the promises may already have an order, but are still on the stream.
    Unreadable promises are left out. Raises redis.RedisError.
    """
    keys = [counter_key(sale), STREAM]
    units_text, entries = lua_script("list_promises")(locks_client(), keys, [sale])
    promises = []
    for entry, stock_seen, order_json in entries:
        with suppress(ValueError, TypeError):  # settle_batch() reports unreadable promises
            promises.append(Promise.parse(entry, stock_seen, order_json))
    unpromised_units = int(units_text) if units_text else None
    return unpromised_units, promises


# --- a sale --------------------------------------------------------------------------------------

#: Product -> the sale that was open when this process last read the database. It may be closed by
#: now; in that case Redis has no counter for it, and promises no unit.
_open_sales: dict[str, Stock] = {}
_open_sales_lock = threading.Lock()


def find_open_sale(product: str, *, outdated_sale: Stock | None = None) -> Stock:
    """Return the product's open sale, from this process's cache or from the database.

    A counter in Redis has the number of units of the sale that are not promised to buyers. If the
    sale is read from the database, and the counter does not exist, the counter is created. The
    `amount` of a cached sale is outdated; use the counter instead.

    outdated_sale  a cached sale that must not be returned, because it may be closed

    Raises UnknownProduct, redis.RedisError, DatabaseError.
    """
    with _open_sales_lock:
        cached_sale = _open_sales.get(product)
        # If another thread has replaced the outdated sale in the cache, no query is needed.
        if cached_sale is not None and cached_sale is not outdated_sale:
            return cached_sale
        _open_sales.pop(product, None)
        with transaction.atomic(durable=True):
            stock = read_stock(Attempt(product, buyer=""), for_update=True)
            unpromised_units, promises = read_promises(stock.sale_id)
            if unpromised_units is None:
                _start_counter(stock, promises)
        _open_sales[product] = stock
        return stock


def _start_counter(stock: Stock, promises: list[Promise]) -> None:
    """Create the counter of a sale in Redis: the number of units that are not promised yet.

    A promise is a unit that Redis has sold to a buyer. Before the counter is created, the order or
    promise of each Idempotency-Key is stored in Redis, so that a repeated request does not buy a
    second unit. The caller has locked the product's row.

    promises  the promises of the sale on the stream; some of them may already have an order
    """
    orders = PurchaseHistory.objects.filter(sale=stock.sale_id)
    store_orders_of_keys(orders)
    order_numbers = set(orders.values_list("pk", flat=True))
    unwritten_promises = [promise for promise in promises if promise.order not in order_numbers]
    pipeline = locks_client().pipeline(transaction=False)
    for promise in unwritten_promises:
        if promise.key is not None:
            promise_text = (
                f"{promise.order} {promise.sale} {promise.fingerprint} {promise.stock_seen}"
            )
            pipeline.set(promise_key(promise.key), promise_text, px=KEY_LIFETIME_MS, nx=True)
    units = max(0, stock.amount - len(unwritten_promises))
    pipeline.set(counter_key(stock.sale_id), units, px=KEY_LIFETIME_MS, nx=True)
    pipeline.execute()


def store_orders_of_keys(orders: QuerySet[PurchaseHistory], *, overwrite: bool = False) -> None:
    """Store the orders in Redis under their Idempotency-Keys.

    A repeated request then gets the order of its key instead of a second unit. promise.lua stores a
    promise (a unit that Redis has sold) in the same format. Orders without a key are left out.

    overwrite  whether to replace promises that Redis already has for these keys

    Raises redis.RedisError, DatabaseError.
    """
    pipeline = locks_client().pipeline(transaction=False)
    columns = ("idempotency_key", "pk", "sale", "fingerprint", "stock_seen")
    # _make_receipt() reads the columns after the key in this order.
    for key, *promise_fields in orders.exclude(idempotency_key=None).values_list(*columns):
        promise_text = " ".join(map(str, promise_fields))
        pipeline.set(promise_key(str(key)), promise_text, px=KEY_LIFETIME_MS, nx=not overwrite)
    pipeline.execute()


def close_sale(sale: int) -> int:
    """Delete a sale's counter in Redis, so that Redis promises no more units to buyers.

    Return 0, because this strategy has no rows of units: all units are in the product's row. The
    caller has locked that row, so no other thread creates the counter again before the transaction
    ends. Raises Unavailable if Redis does not answer, except in a demo.
    """
    if can_have_promises():
        try:
            locks_client().delete(counter_key(sale))
        except redis.RedisError as error:
            if not settings.SHOP_DEMO:
                raise Unavailable(
                    "the lock's server does not answer; nothing was changed"
                ) from error
            logger.warning("Redis may still sell units of the closed sale %s: %s", sale, error)
    return 0


# --- a promise ----------------------------------------------------------------------------------


def promise_unit(attempt: Attempt) -> Receipt:
    """Promise one unit to this attempt: take it from the stock in Redis.

    `manage.py settle` writes its order later.

    If the attempt's Idempotency-Key already has a promise, in any sale, return the receipt of that
    promise, with `replayed` True.

    Raises SoldOut, SaleOver, SaleClosed, UnknownProduct, KeyReused, redis.RedisError or
    DatabaseError. Raises SettlementBehind if too many orders are still to be written, or if one of
    them has been waiting for too long. After these errors no unit was promised. Raises
    CommitUnknown if a unit may have been promised.
    """
    reservation_id = attempt.make_reservation_id()
    stock = _open_sales.get(attempt.product) or find_open_sale(attempt.product)
    for _ in range(2):  # the second time only if the cached sale was closed
        if attempt.sale is not None and attempt.sale > stock.sale_id:
            # The buyer wants a newer sale than the cached one, so read the open sale again. An
            # older sale is over, so it needs no query.
            stock = find_open_sale(attempt.product, outdated_sale=stock)
        if attempt.sale not in (None, stock.sale_id):
            # The requested sale is not open, so only an earlier promise can be returned.
            earlier_promise_text = locks_client().get(promise_key(reservation_id))
            if earlier_promise_text is None:
                raise SaleOver
            return _make_receipt(attempt, cast(bytes, earlier_promise_text), replayed=True)
        script_answer, promise_text = run_promise_script(attempt, reservation_id, stock)
        if promise_text:
            is_earlier_promise = script_answer == b"held"
            return _make_receipt(attempt, promise_text, replayed=is_earlier_promise)
        if script_answer in ERROR_BY_SCRIPT_ANSWER:
            raise ERROR_BY_SCRIPT_ANSWER[script_answer]
        # The answer was `not open`: the cached sale may be closed.
        stock = find_open_sale(attempt.product, outdated_sale=stock)
    raise SaleClosed


def run_promise_script(attempt: Attempt, reservation_id: str, stock: Stock) -> list[bytes]:
    """Run promise.lua, which takes a unit from the stock in Redis for this attempt.

    Return the script's two replies. The first is a word, such as b'promised' or b'sold out'. The
    second is the promise as a text: the numbers of the order and of the sale, the fingerprint, and
    the stock before the promise. It is empty if the attempt gets no unit.

    Raises CommitUnknown if Redis does not reply, so that a unit may have been promised. Raises
    redis.RedisError or DatabaseError if no unit was promised.
    """
    client = locks_client()
    # Connect before the script is sent: after a failure to connect, nothing can have been promised.
    client.connection_pool.release(client.connection_pool.get_connection())
    order = {
        "order": _draw_order_number(),
        "sale": stock.sale_id,
        "product": stock.product_id,
        "product_name": attempt.product,
        "buyer": attempt.buyer,
        "key": attempt.key,
        "fingerprint": attempt.fingerprint,
    }
    keys = [counter_key(stock.sale_id), promise_key(reservation_id), STREAM]
    # The text of the promise, to which the script appends the stock.
    promise_text_without_stock = f"{order['order']} {stock.sale_id} {attempt.fingerprint}"
    args: list[str | int] = [
        promise_text_without_stock,
        stock.sale_id,
        json.dumps(order),
        settings.SHOP_MOST_UNSETTLED,
        KEY_LIFETIME_MS,
        round(settings.SHOP_LONGEST_UNSETTLED * 1000),
    ]
    try:
        answer_and_promise_text: list[bytes] = lua_script("promise")(client, keys, args)
    except redis.ResponseError:  # Redis refused the script, so nothing was promised
        raise
    except redis.RedisError as error:
        logger.warning("%s: Redis did not reply to promise.lua: %s", STRATEGY_NAME, error)
        raise CommitUnknown from error
    return answer_and_promise_text


def _make_receipt(attempt: Attempt, promise_text: bytes, *, replayed: bool) -> Receipt:
    """Return the receipt of a promise. A promise is a unit that Redis has sold to a buyer.

    promise_text  order, sale, fingerprint and stock, separated by spaces
    replayed      whether an earlier request with the same key got the promise

    Raises KeyReused if the earlier request had another fingerprint (a digest of the request).
    """
    order, sale, fingerprint, stock_seen = promise_text.decode().split()
    if fingerprint != attempt.fingerprint:
        raise KeyReused
    return Receipt(
        order_id=int(order), sale_id=int(sale), stock_seen=int(stock_seen), replayed=replayed
    )


_order_numbers: list[int] = []
_order_numbers_lock = threading.Lock()


def _draw_order_number() -> int:
    """Return a unique order number from PostgreSQL's sequence. Raises DatabaseError.

    Each query draws many numbers, so that most purchases need no query.
    """
    with _order_numbers_lock:
        if not _order_numbers:
            sequence = f"{PurchaseHistory._meta.db_table}_id_seq"
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT nextval(%s::regclass) FROM generate_series(1, %s)",
                    [sequence, ORDER_NUMBERS_PER_QUERY],
                )
                # pop() takes the last number, so reverse them to use the lowest first.
                _order_numbers.extend(number for (number,) in reversed(cursor.fetchall()))
        return _order_numbers.pop()
