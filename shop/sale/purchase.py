"""The critical section of a purchase (`sell_one`): check the stock, decrement it, record the order.

A demo may pause a buyer between the check and the decrement, as if for the payment. A test can stop
a buyer at a point, which is a named place in the code (shop/sale/points.py).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Self, TypeAlias
from uuid import uuid4

from django.conf import settings
from django.db import IntegrityError, connection
from django.db.models import F
from django.utils import timezone

from shop.errors import SaleClosed, SaleOver, SoldOut, UnknownProduct
from shop.models import Product
from shop.ops.database import is_violation_of
from shop.sale.points import point_reached

if TYPE_CHECKING:
    from locks import one_file
    from locks.lease import BaseLease

#: A lease on a lock of any kind.
AnyLease: TypeAlias = "BaseLease | one_file.Lease"

#: Part of the name of the constraint that is violated if an order with the same key exists.
KEY_CONSTRAINT_PART = "idempotency_key"

INSERT_ORDER = """
    INSERT INTO purchase_history (sale_id, product_name, purchaser, purchase_time, amount,
                                  idempotency_key, fingerprint, "lock", stock_seen, fence)
    VALUES (%s, %s, %s, %s, 1, %s, %s, %s, %s, %s)
"""


class KeyHasBought(Exception):
    """An order with this Idempotency-Key exists. This attempt is rolled back."""


@dataclass(slots=True)
class Attempt:
    """A request to buy one unit.

    product          name of the product
    buyer            name of the buyer
    lock             name of the strategy
    payment_seconds  pause of a demo between the check and the decrement, as if for the payment
    key              Idempotency-Key, or None
    sale             number of the sale in which the buyer wants to buy; None for the open sale
    """

    product: str
    buyer: str
    lock: str = "none"
    payment_seconds: float = 0.0
    key: str | None = None
    sale: int | None = None
    #: True after the last statement of the transaction. After a later error it is unknown whether
    #: the transaction was committed.
    may_have_committed: bool = False

    @property
    def lock_name(self) -> str:
        """The name of the lock on the product: each strategy has its own lock for each product."""
        return f"{self.lock}:{self.product}"

    def make_reservation_id(self) -> str:
        """Return the id under which Redis reserves a unit for this attempt.

        It is the Idempotency-Key, so that a repeated request reserves no second unit. Without a
        key, each call returns a new id.
        """
        return self.key or uuid4().hex

    @property
    def fingerprint(self) -> str:
        """A digest of the request. A repeated request has the same digest.

        It includes the strategy only in a demo. Elsewhere the server chooses the strategy, and may
        have changed it before the request is repeated.
        """
        lock = self.lock if settings.SHOP_DEMO else ""
        text = f"{self.product}\0{self.buyer}\0{lock}\0{self.payment_seconds}"
        if self.sale is not None:
            text += f"\0{self.sale}"
        return sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Stock:
    """The stock that was read at the check.

    amount      units left
    version     counts the writes of the strategy `version`
    row_number  number of the bucket or unit to sell from, if the strategy has its own rows
    """

    product_id: int
    sale_id: int
    amount: int
    version: int = 0
    row_number: int = 0


@dataclass(frozen=True, slots=True)
class LeaseSummary:
    """A summary of the lease under which a unit was sold, with times in milliseconds.

    released  the outcome of the release; None if the lease has no outcome
    """

    waited_ms: float
    held_ms: float
    fence: int | None
    released: str | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a purchase: an order of one unit.

    stock_seen  units left at the check, including the sold one
    replayed    whether an earlier request with the same key bought the unit
    lease       None if the unit was sold without a lock or by an earlier request
    """

    order_id: int
    sale_id: int
    stock_seen: int
    replayed: bool = False
    lease: LeaseSummary | None = None

    def with_lease(self, lease: AnyLease) -> Self:
        """Return a copy of this receipt with a summary of the lease, which has been released."""
        outcome = None
        if lease.outcome is not None:
            outcome = str(lease.outcome)
        summary = LeaseSummary(
            waited_ms=round(lease.waited_seconds * 1000, 1),
            held_ms=round(lease.held_seconds * 1000, 1),
            fence=lease.fence,
            released=outcome,
        )
        return replace(self, lease=summary)


def require_requested_sale(attempt: Attempt, stock: Stock) -> None:
    """Raise SaleOver if the buyer wants to buy in another sale than that of the stock.

    A buyer who waits until a sale is over must not buy in the next sale.
    """
    if attempt.sale not in (None, stock.sale_id):
        raise SaleOver


def read_stock(attempt: Attempt, *, for_update: bool = False) -> Stock:
    """Read the stock. With `for_update`, also lock the product's row against other buyers.

    Raises UnknownProduct if the product is not on sale.
    """
    products = Product.objects.filter(name=attempt.product, sale__isnull=False)
    if for_update:
        products = products.select_for_update()
    row = products.values_list("pk", "sale_id", "amount", "version").first()
    if row is None:
        raise UnknownProduct
    return Stock(*row)


def write_stock(attempt: Attempt, stock: Stock) -> None:
    """Subtract one from the stock that was read, and write it, as in article A1 (docs/sources.md).

    This overwrites any decrement since the read. Raises SaleClosed if another sale has been opened
    since the read.
    """
    # Written in SQL, because other buyers wait, and the ORM needs three times the processor time.
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE product SET amount = %s WHERE id = %s AND sale_id = %s",
            [stock.amount - 1, stock.product_id, stock.sale_id],
        )
        if not cursor.rowcount:
            raise SaleClosed


def decrement_stock(attempt: Attempt, stock: Stock) -> None:
    """Decrement the current stock in one UPDATE. A CHECK constraint refuses a negative stock.

    Raises SoldOut if no unit is left, and SaleClosed if the sale is no longer open.
    """
    product_in_sale = Product.objects.filter(pk=stock.product_id, sale_id=stock.sale_id)
    try:
        if not product_in_sale.update(amount=F("amount") - 1):
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
    """Check the stock, wait for the payment, decrement the stock, and record the order.

    A strategy calls this function while it holds its lock, if it has one, and in a transaction that
    commits afterwards (see `buy` in shop/strategies/).

    read   reads the stock; some strategies lock a row, too
    write  decrements the stock
    fence  the fencing token of the lock, which is stored with the order; None if there is none

    Raises SoldOut, SaleOver, KeyHasBought if the attempt's key already has an order, and the errors
    of `read` and `write`.
    """
    attempt.may_have_committed = False  # an earlier try of this attempt may have set this flag
    stock = read(attempt)
    point_reached.send("after_read", amount=stock.amount, sale=stock.sale_id)
    require_requested_sale(attempt, stock)
    if stock.amount < 1:
        raise SoldOut
    if attempt.payment_seconds:
        time.sleep(attempt.payment_seconds)
    write(attempt, stock)
    order_id = record_order(attempt, stock, fence)
    attempt.may_have_committed = True
    return Receipt(order_id=order_id, sale_id=stock.sale_id, stock_seen=stock.amount)


def record_order(attempt: Attempt, stock: Stock, fence: int | None) -> int:
    """Insert the order and return its id.

    If another transaction has inserted an order with the same Idempotency-Key, wait until that
    transaction ends. Raises KeyHasBought if the other transaction commits.
    """
    order_values = (
        stock.sale_id,
        attempt.product,
        attempt.buyer,
        timezone.now(),
        attempt.key,
        attempt.fingerprint,
        attempt.lock,
        stock.amount,
        fence,
    )
    try:
        with connection.cursor() as cursor:
            if connection.features.can_return_columns_from_insert:
                cursor.execute(f"{INSERT_ORDER} RETURNING id", order_values)
                (order_id,) = cursor.fetchone()
            else:  # MySQL
                cursor.execute(INSERT_ORDER, order_values)
                order_id = cursor.lastrowid
    except IntegrityError as error:
        if is_violation_of(KEY_CONSTRAINT_PART, error):
            raise KeyHasBought from error
        raise
    point_reached.send("before_commit", order=order_id)
    return int(order_id)
