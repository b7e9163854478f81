"""Where the units of an open sale lie, for strategies that do not sell from the product's row.

    product.amount  what nobody has moved: all of it, under most strategies
    shop_bucket     `buckets`: parts of the stock, one row each
    shop_unit       `skip-locked`: one row for each unit that is not sold

A unit lies in one of them and is moved in a transaction. So under every strategy the stock left is
their sum (reports.py), and the end of a sale takes back what is left (`gather_*`). Within a sale
only `fill_*` adds to a bucket or a unit, and nothing adds to the product's row: what was found
empty in this order, the row and then the rest, stays empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from django.db import connection, transaction

from shop.errors import SaleClosed, UnknownProduct
from shop.models import Bucket, Product, Unit
from shop.sale.purchase import Attempt, Receipt, Stock, read_stock

#: Rows that a sale is split over: more of them would not sell more, as buyers also share the rest
#: of the database, and each is a row to read for every purchase.
BUCKETS = 16
#: Units that are moved at once: what a restock, or the buyer who finds none, waits for is bounded.
MOST_UNITS = 20_000

Buy = Callable[[Attempt], Receipt]


class Unfilled(Exception):
    """No unit is where this strategy looks, and some are still in the product's row."""

    def __init__(self, stock: Stock) -> None:
        super().__init__()
        self.stock = stock


def none_found(stock: Stock) -> Stock:
    """What a buyer saw who found no unit: that none is left. `stock` is the product's row as it was
    before the search. Raises Unfilled if it had any, SaleClosed if the search was too late."""
    if stock.amount:
        raise Unfilled(stock)
    if not Product.objects.filter(pk=stock.product_id, sale_id=stock.sale_id).exists():
        raise SaleClosed
    return stock


#: One statement sees one snapshot: the product's row and all buckets as they were at one moment.
IN_BUCKETS = """
    SELECT product.id, product.sale_id, product.amount,
           coalesce(sum(bucket.amount), 0), array_remove(array_agg(bucket.number), NULL)
    FROM product LEFT JOIN shop_bucket AS bucket
        ON bucket.sale_id = product.sale_id AND bucket.amount > 0
    WHERE product.name = %s AND product.sale_id IS NOT NULL
    GROUP BY product.id
"""


def units_and_buckets(product: str) -> tuple[Stock, list[int]]:
    """The units of a product in its row and its buckets together, and the numbers of the buckets
    that have one. Raises UnknownProduct, or Unfilled where only the row has units."""
    with connection.cursor() as cursor:
        cursor.execute(IN_BUCKETS, [product])
        row = cursor.fetchone()
    if row is None:
        raise UnknownProduct
    product_id, sale_id, in_its_row, in_buckets, filled = row
    stock = Stock(product_id, sale_id, in_its_row + in_buckets)
    if stock.amount and not filled:
        raise Unfilled(stock)
    return stock, filled


def wait_for_a_unit(attempt: Attempt) -> Stock:
    """What a buyer sees who waits for a unit that others have locked: one that was given back, or
    that none is left. Raises UnknownProduct, Unfilled, SaleClosed."""
    stock = read_stock(attempt)
    unsold = Unit.objects.filter(sale_id=stock.sale_id).order_by("-number")
    unit = unsold.select_for_update().first()
    if unit is None:
        return none_found(stock)
    return replace(stock, amount=unit.number, place=unit.number)


def refilled(fill: Callable[[Stock], None]) -> Callable[[Buy], Buy]:
    """A `buy` that moves the units of a sale that was opened for no strategy, and tries again.

    In a transaction of its own: as part of a purchase it would keep everybody else out until that
    was committed.
    """

    def decorate(buy_once: Buy) -> Buy:
        def buy(attempt: Attempt) -> Receipt:
            while True:
                try:
                    return buy_once(attempt)
                except Unfilled as empty:
                    fill(empty.stock)

        return buy

    return decorate


@transaction.atomic
def fill_buckets(stock: Stock) -> None:
    """Spread what is in the product's row over BUCKETS rows, unless somebody else just did."""
    product = _with_units(stock)
    buckets = Bucket.objects.filter(sale_id=stock.sale_id)
    if product is None or buckets.filter(amount__gt=0).exists():
        return
    each, more = divmod(product.amount, BUCKETS)
    parts = [each + (number < more) for number in range(BUCKETS)]
    buckets.delete()  # empty ones
    Bucket.objects.bulk_create(
        Bucket(sale_id=stock.sale_id, number=number, amount=part)
        for number, part in enumerate(parts)
    )
    Product.objects.filter(pk=product.pk).update(amount=0)


@transaction.atomic
def fill_units(stock: Stock) -> None:
    """Make a row of each unit in the product's row, of the last MOST_UNITS at most, unless somebody
    else just did. The unit that was the n-th of the row gets number n."""
    product = _with_units(stock)
    if product is None or Unit.objects.filter(sale_id=stock.sale_id).exists():
        return
    stay = max(0, product.amount - MOST_UNITS)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO shop_unit (sale_id, number) SELECT %s, generate_series(%s, %s)",
            [stock.sale_id, stay + 1, product.amount],
        )
    Product.objects.filter(pk=product.pk).update(amount=stay)


def gather_buckets(sale_id: int) -> int:
    """Remove the buckets of a sale. Returns how many units were in them.

    Waits for every purchase that has taken one. No purchase waits for anything while it has a
    bucket or a unit, but for an order with its own key: there is no deadlock.
    """
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM shop_bucket WHERE sale_id = %s RETURNING amount", [sale_id])
        return sum(int(amount) for (amount,) in cursor.fetchall())


def gather_units(sale_id: int) -> int:
    """The same, of the rows of single units."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM shop_unit WHERE sale_id = %s", [sale_id])
        return int(cursor.rowcount)


def _with_units(stock: Stock) -> Product | None:
    """The product, locked, if this sale is still on and units are in its row."""
    products = Product.objects.select_for_update().filter(pk=stock.product_id, amount__gt=0)
    return products.filter(sale_id=stock.sale_id).first()
