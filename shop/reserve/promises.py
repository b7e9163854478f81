"""Units that Redis has promised to buyers, and whose orders are written afterwards.

One script takes a unit and puts the promise on a stream; `manage.py settle` writes the orders
(settle.py). What a sale begins with here is found under the lock of its product's row: meanwhile
no promise is settled and no sale is opened or closed.
"""

from __future__ import annotations

import json
import logging
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Self, cast

import redis
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from shop.errors import Behind, CommitUnknown, KeyReused, SaleClosed, SaleOver, SoldOut
from shop.lua import lua
from shop.models import PurchaseHistory
from shop.ops.redis import locks_client
from shop.reserve import order_numbers
from shop.sale.purchase import Attempt, Stock, read_stock

logger = logging.getLogger("shop.reserve.promises")

#: Milliseconds that a sale's counter is kept after its last buyer. A restock has a new one.
KEEP = 24 * 3600 * 1000
#: The strategy that sells like this.
LOCK = "reserve"
#: All keys are in one cluster slot: one script takes the unit and writes to the stream.
PREFIX = f"stock:{{{LOCK}}}"
STREAM = f"{PREFIX}:promises"
#: Entries of that stream whose order nobody will write, for whoever makes it good: the last
#: MOST_BROKEN or some more. `entry` is the id that each had.
BROKEN = f"{PREFIX}:broken"


@dataclass(frozen=True, slots=True)
class Promise:
    """A unit that was promised, and the order that is written for it.

    order       the order's number
    stock_seen  units that there were before it
    entry       its id on the stream: milliseconds of Redis's clock, and a number; empty for one
                that was read from its attempt
    """

    order: int
    sale: int
    product: int
    product_name: str
    buyer: str
    key: str | None
    fingerprint: str
    stock_seen: int = 0
    entry: str = ""

    @property
    def brief(self) -> str:
        """What is kept for its attempt, but for the units."""
        return f"{self.order} {self.sale} {self.fingerprint}"

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
    """Where the units of a sale are that nobody was promised."""
    return f"{PREFIX}:{sale}"


def books_key(sale: int) -> str:
    """Where it is counted what became of the promises of a sale."""
    return f"{PREFIX}:{sale}:books"


def attempt_key(holder: str) -> str:
    """Where an attempt's promise is kept, whatever the sale: a key has one order."""
    return f"{PREFIX}:by:{holder}"


def in_use() -> bool:
    """Whether this shop may have promised anything: else Redis is not asked."""
    return bool(settings.SHOP_DEMO or settings.SHOP_LOCK == LOCK)


def promised(sale: int) -> tuple[int | None, list[Promise]]:
    """Units of a sale that nobody was promised, None where Redis does not sell it; and the promises
    that are not settled, but for those that nobody can read. Raises redis.RedisError."""
    left, entries = _promised(sale)
    found = []
    for entry in entries:
        with suppress(ValueError, TypeError):  # a consumer sets it aside
            found.append(Promise.parse(*entry))
    return left, found


def unsettled(sale: int) -> int:
    """How many promises of a sale are not settled. Raises redis.RedisError."""
    return len(_promised(sale)[1])


def _promised(sale: int) -> tuple[int | None, list[list[bytes]]]:
    left, entries = lua("promised")(locks_client(), [count_key(sale), STREAM], [sale])
    return (int(left) if left else None), entries


# --- a sale --------------------------------------------------------------------------------------

#: Product -> its sale, as this process saw it last. Redis does not sell one that is over.
_open: dict[str, Stock] = {}
_opening = threading.Lock()


def open_sale(product: str, *, instead_of: Stock | None = None) -> Stock:
    """Have Redis sell what PostgreSQL says is left of the product's sale, unless it does already;
    with what it may have forgotten: which keys have bought. Returns the sale.

    instead_of  the sale that turned out not to be open: who comes after another thread has opened
                the next one uses that

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
                _begin(stock, waiting)
        _open[product] = stock
        return stock


def _begin(stock: Stock, waiting: list[Promise]) -> None:
    """Begin the counter of a sale. Its product's row is locked."""
    orders = PurchaseHistory.objects.filter(sale=stock.sale_id)
    remember(orders)
    written = set(orders.values_list("pk", flat=True))
    open_promises = [one for one in waiting if one.order not in written]
    pipeline = locks_client().pipeline(transaction=False)
    for one in open_promises:
        if one.key is not None:
            brief = f"{one.brief} {one.stock_seen}"
            pipeline.set(attempt_key(one.key), brief, px=KEEP, nx=True)
    left = max(0, stock.amount - len(open_promises))
    pipeline.set(count_key(stock.sale_id), left, px=KEEP, nx=True)
    pipeline.execute()


def remember(orders: QuerySet[PurchaseHistory], *, instead: bool = False) -> None:
    """Have Redis know which keys have bought, and what. Raises redis.RedisError, DatabaseError.

    instead  also of keys that it knows otherwise
    """
    pipeline = locks_client().pipeline(transaction=False)
    for number, sale, key, fingerprint, seen in orders.exclude(idempotency_key=None).values_list(
        "pk", "sale", "idempotency_key", "fingerprint", "stock_seen"
    ):
        brief = f"{number} {sale} {fingerprint} {seen}"
        pipeline.set(attempt_key(str(key)), brief, px=KEEP, nx=not instead)
    pipeline.execute()


def close_sale(sale: int) -> int:
    """Promise nothing more of this sale. Call it while its product's row is locked: nobody begins
    it again before the transaction has ended. Returns 0: its units are in the product's row.
    Raises redis.RedisError, but in a demo."""
    if not in_use():
        return 0
    try:
        locks_client().delete(count_key(sale))
    except redis.RedisError as error:
        if not settings.SHOP_DEMO:
            raise
        logger.warning("Redis may still sell sale %s: %s", sale, error)
    return 0


# --- a promise ----------------------------------------------------------------------------------


def promise(attempt: Attempt) -> tuple[Promise, bool]:
    """Promise one unit to this attempt, and whether it had been promised before: one key has one
    promise, in whichever sale, for KEEP.

    Raises SoldOut, SaleOver, SaleClosed, UnknownProduct, KeyReused, Behind (too many are unsettled,
    or one for too long) or redis.RedisError when nothing was promised, and CommitUnknown when
    something may have been.
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
            return _held(attempt, stock, cast(bytes, held)), True
        answer, *value = _ask(attempt, holder, stock)
        if answer == b"promised":
            return value[0], False
        if answer == b"held":
            return _held(attempt, stock, value[0]), True
        if answer == b"sold out":
            raise SoldOut
        if answer == b"behind":
            raise Behind
        stock = open_sale(attempt.product, instead_of=stock)
    raise SaleClosed


def _ask(attempt: Attempt, holder: str, stock: Stock) -> list[Any]:
    """The script's answer, the promise in the place of the units."""
    client = locks_client()
    # Taken by itself: where Redis cannot be reached, nothing was asked.
    client.connection_pool.release(client.connection_pool.get_connection())
    wanted = Promise(
        order=order_numbers.take(),
        sale=stock.sale_id,
        product=stock.product_id,
        product_name=attempt.product,
        buyer=attempt.buyer,
        key=attempt.key,
        fingerprint=attempt.fingerprint,
    )
    keys = [count_key(stock.sale_id), attempt_key(holder), STREAM]
    order = asdict(wanted)
    del order["stock_seen"], order["entry"]
    args: list[str | int] = [wanted.brief, wanted.sale, json.dumps(order)]
    args += [settings.SHOP_MOST_UNSETTLED, KEEP, round(settings.SHOP_LONGEST_UNSETTLED * 1000)]
    try:
        answer: list[Any] = lua("promise")(client, keys, args)
    except redis.ResponseError:  # it refuses writes, or is busy
        order_numbers.put_back(wanted.order)
        raise
    except redis.RedisError as error:
        logger.warning("%s: no reply to a promise: %s", LOCK, error)
        raise CommitUnknown from error
    if answer[0] == b"promised":
        return [answer[0], replace(wanted, stock_seen=int(answer[1]))]
    order_numbers.put_back(wanted.order)
    return answer


def _held(attempt: Attempt, stock: Stock, held: bytes) -> Promise:
    """The promise that this attempt has. Raises KeyReused if it was another request's."""
    order, sale, fingerprint, seen = held.decode().split()
    if fingerprint != attempt.fingerprint:
        raise KeyReused
    return Promise(
        order=int(order),
        sale=int(sale),
        product=stock.product_id,
        product_name=attempt.product,
        buyer=attempt.buyer,
        key=attempt.key,
        fingerprint=fingerprint,
        stock_seen=int(seen),
    )
