"""The critical section, `sell_one`: check, hold, decrement, record."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Self
from uuid import uuid4

from django.conf import settings
from django.db import IntegrityError, connection
from django.db.models import F
from django.utils import timezone

from shop.errors import SaleClosed, SaleOver, SoldOut, UnknownProduct
from shop.models import Product
from shop.sale.points import Held, point

#: The constraint that PostgreSQL names when a key has bought already.
KEY_CONSTRAINT = "idempotency_key"

RECORD = """
    INSERT INTO purchase_history (sale_id, product_name, purchaser, purchase_time, amount,
                                  idempotency_key, fingerprint, lock, stock_seen, fence)
    VALUES (%s, %s, %s, %s, 1, %s, %s, %s, %s, %s)
    RETURNING id
"""


class KeyHasBought(Exception):
    """An order with this Idempotency-Key exists; whatever this attempt did is rolled back."""


@dataclass(slots=True)
class Attempt:
    """A request to buy one unit.

    product  name of the product
    buyer    who buys
    lock     name of the strategy
    hold     seconds spent between the check and the decrement
    key      Idempotency-Key, or None
    sale     number of the sale that the buyer came for, or None: whichever is open
    address  where the request comes from
    """

    product: str
    buyer: str
    lock: str = "none"
    hold: float = 0.0
    key: str | None = None
    sale: int | None = None
    address: str = ""
    #: True from the last statement on: an error after it leaves the commit in doubt.
    committing: bool = False

    @property
    def lock_name(self) -> str:
        """What its lock is called. Each strategy has its own: what one left blocks no other."""
        return f"{self.lock}:{self.product}"

    @property
    def holder(self) -> str:
        """The holder of a unit in Redis: a repeated request is the same holder, if it has a key."""
        return self.key or uuid4().hex

    @property
    def fingerprint(self) -> str:
        """Digest of the request, to distinguish a repeated one from another one. The lock is the
        buyer's choice only in a demo: elsewhere the server may have another one by now."""
        lock = self.lock if settings.SHOP_DEMO else ""
        asked = f"{self.product}\0{self.buyer}\0{lock}\0{self.hold}"
        asked += "" if self.sale is None else f"\0{self.sale}"
        return sha256(asked.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Stock:
    """What the check saw: the product's row as one read found it.

    place  the number of the bucket or unit to sell from, where that is not the product's row
    """

    product_id: int
    sale_id: int
    amount: int
    version: int = 0
    place: int = 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """A sold unit. `lock` describes the lock: name, waited, held, fence, released."""

    order_id: int
    sale_id: int
    stock_seen: int
    replayed: bool = False
    lock: dict[str, Any] = field(default_factory=dict)

    def under(self, lease: Held) -> Self:
        """This receipt with what became of the lease it was sold under. Times in milliseconds."""
        of_lease = {
            "waited_ms": round(lease.waited_seconds * 1000, 1),
            "held_ms": round(lease.held_seconds * 1000, 1),
            "fence": lease.fence,
            "released": lease.outcome and str(lease.outcome),
        }
        return replace(self, lock=of_lease)


def require_its_sale(attempt: Attempt, stock: Stock) -> None:
    """Raises SaleOver if the buyer came for another sale than the one that was read: a buyer who
    waited past the end of a sale must not buy in the next one."""
    if attempt.sale not in (None, stock.sale_id):
        raise SaleOver


def read_stock(attempt: Attempt, *, for_update: bool = False) -> Stock:
    """Look at the stock. It may be another one a moment later, unless it is read `for_update`."""
    products = Product.objects.select_for_update() if for_update else Product.objects
    row = (
        products.filter(name=attempt.product, sale__isnull=False)
        .values_list("pk", "sale_id", "amount", "version")
        .first()
    )
    if row is None:
        raise UnknownProduct
    return Stock(*row)


def write_stock(attempt: Attempt, stock: Stock) -> None:
    """Write back what was read, less one, as article A1 does (docs/sources.md), blind to what
    others wrote since.

    A restock in between is the one thing that it does see: the sale that was read is over. In SQL,
    as the order below, since all others wait meanwhile: the ORM takes three times the CPU.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE product SET amount = %s WHERE id = %s AND sale_id = %s",
            [stock.amount - 1, stock.product_id, stock.sale_id],
        )
        if not cursor.rowcount:
            raise SaleClosed


def write_relative(attempt: Attempt, stock: Stock) -> None:
    """One less than there is now, whatever was read: below zero the row's CHECK refuses it.

    Raises SoldOut, or SaleClosed.
    """
    same_sale = Product.objects.filter(pk=stock.product_id, sale_id=stock.sale_id)
    try:
        if not same_sale.update(amount=F("amount") - 1):
            raise SaleClosed
    except IntegrityError as error:  # product_amount_not_negative
        raise SoldOut from error


def sell_one(
    attempt: Attempt,
    *,
    read: Callable[[Attempt], Stock] = read_stock,
    write: Callable[[Attempt, Stock], None] = write_stock,
    fence: int | None = None,
) -> Receipt:
    """Check, hold, decrement, record: the same in every strategy but for how it reads and writes.

    Runs inside the transaction that its strategy opens; a strategy that locks does so in locked.py,
    where the lock encloses it. Raises SoldOut, SaleOver, UnknownProduct, Lost, or KeyHasBought when
    the attempt's key has an order already.
    """
    attempt.committing = False
    stock = read(attempt)
    point("after_read", amount=stock.amount, sale=stock.sale_id)
    require_its_sale(attempt, stock)
    if stock.amount < 1:
        raise SoldOut
    if attempt.hold:
        time.sleep(attempt.hold)
    write(attempt, stock)
    order = record(attempt, stock, fence)
    attempt.committing = True
    return Receipt(order_id=order, sale_id=stock.sale_id, stock_seen=stock.amount)


def record(attempt: Attempt, stock: Stock, fence: int | None) -> int:
    """Insert the order; its id. A second one with the same key waits for the first and fails."""
    values = (
        *(stock.sale_id, attempt.product, attempt.buyer, timezone.now()),
        *(attempt.key, attempt.fingerprint, attempt.lock, stock.amount, fence),
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute(RECORD, values)
            (order,) = cursor.fetchone()
    except IntegrityError as error:
        diagnosis = getattr(error.__cause__, "diag", None)
        if KEY_CONSTRAINT in (getattr(diagnosis, "constraint_name", None) or ""):
            raise KeyHasBought from error
        raise
    point("before_commit", order=order)
    return int(order)
