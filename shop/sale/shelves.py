"""Where the units of an open sale lie, for strategies that do not sell from the product's row.

    product.amount  under most strategies all of it
    shop_bucket     `buckets`: parts of the stock, one row each
    shop_unit       `skip-locked`: one row for each unit that is not sold

A sale is opened for one strategy: `fill_*` puts its units where that one sells them from, in the
transaction that opens it, and `gather_*` takes back what is left, in the one that closes it. In
between nothing is added: what was found empty stays empty. The stock left is the sum of the three
(reports.py).
"""

from django.db import connection

from shop.errors import BadInput
from shop.models import Bucket, Product
from shop.sale.purchase import Stock

#: Rows that a sale is split over: more of them would not sell more, as buyers also share the rest
#: of the database, and each is a row to read for every purchase.
BUCKETS = 16
#: Units that are a row each: a restock takes so long to write them, and a close to remove them.
MOST_UNITS = 100_000


def fill_buckets(stock: Stock) -> None:
    """Spread the units of a new sale over BUCKETS rows."""
    each, more = divmod(stock.amount, BUCKETS)
    Bucket.objects.bulk_create(
        Bucket(sale_id=stock.sale_id, number=number, amount=each + (number < more))
        for number in range(BUCKETS)
    )
    Product.objects.filter(pk=stock.product_id).update(amount=0)


def fill_units(stock: Stock) -> None:
    """Make a row of each unit of a new sale. Raises BadInput for more than MOST_UNITS."""
    if stock.amount > MOST_UNITS:
        raise BadInput("too many rows of single units", allowed=[f"{MOST_UNITS} units at most"])
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO shop_unit (sale_id, number) SELECT %s, generate_series(1, %s)",
            [stock.sale_id, stock.amount],
        )
    Product.objects.filter(pk=stock.product_id).update(amount=0)


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
