"""The stock split over several rows, so that buyers of one product write different rows at once.

Under most other strategies all buyers wait for the same row. Here each buyer takes a unit from a
random bucket that is not empty, by a conditional UPDATE. If other buyers emptied the bucket first,
the buyer tries again with another bucket, in a new transaction. A bucket is never refilled, so if a
query sees that all are empty, the product is sold out. There are two disadvantages: the stock is a
sum over rows instead of one number, and when few units are left, some buyers choose a bucket that
other buyers empty first, and have to try again.

A sale is opened for one strategy. The transaction that opens it moves its units to the rows from
which the strategy sells. The transaction that closes it moves the unsold units back. In between no
unit is added. The stock left is the sum of the product's row, shop_bucket and shop_unit
(shop/sale/reports.py).
"""

import random

from django.db import connection, transaction

from shop.errors import UnknownProduct, WrongStrategy
from shop.models import Bucket, Product
from shop.sale.purchase import Attempt, Receipt, Stock, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.conflict_retry import Conflict, retry_on_conflict

#: Number of rows that a sale is split over. More buckets would not sell more, because buyers also
#: share the rest of the database, and every purchase reads all rows.
BUCKETS_PER_SALE = 16
#: Written in SQL: here buyers rarely wait, so the shop's processor time limits the sales per
#: second, and the ORM's queries would take half of it.
SELECT_BUCKETS = """
    SELECT product.id, product.sale_id, product.amount, bucket.number, bucket.amount
    FROM product LEFT JOIN shop_bucket AS bucket
        ON bucket.sale_id = product.sale_id AND bucket.amount > 0
    WHERE product.name = %s AND product.sale_id IS NOT NULL
"""
TAKE_UNIT = """
    UPDATE shop_bucket SET amount = amount - 1 WHERE sale_id = %s AND number = %s AND amount > 0
"""


def choose_bucket(attempt: Attempt) -> Stock:
    """Return the stock of all buckets, with the number of a random bucket that is not empty.

    A bucket is one of the rows over which the stock is split. If all buckets are empty, `amount` is
    0. Raises UnknownProduct or WrongStrategy.
    """
    with connection.cursor() as cursor:
        cursor.execute(SELECT_BUCKETS, [attempt.product])
        rows = cursor.fetchall()
    if not rows:
        raise UnknownProduct
    product_id, sale_id, amount_in_row = rows[0][:3]
    if amount_in_row:
        # fill_buckets() leaves no units in the product's row, so the sale was opened for another
        # strategy.
        raise WrongStrategy
    # If all buckets are empty, the LEFT JOIN returns one row, whose bucket amount is NULL.
    amounts = {number: amount for _, _, _, number, amount in rows if amount}
    if not amounts:
        return Stock(product_id, sale_id, amount=0)
    bucket_number = random.choice(list(amounts))
    return Stock(product_id, sale_id, sum(amounts.values()), row_number=bucket_number)


def take_unit(attempt: Attempt, stock: Stock) -> None:
    """Take a unit from the bucket `stock.row_number`. Raises Conflict if it is empty by now."""
    with connection.cursor() as cursor:
        bucket_number = stock.row_number
        cursor.execute(TAKE_UNIT, [stock.sale_id, bucket_number])
        if not cursor.rowcount:
            # buy() rolls back and tries again in a new transaction. Therefore no buyer ever waits
            # for a bucket while it has locked another bucket.
            raise Conflict


@retry_on_conflict
def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt, read=choose_bucket, write=take_unit)


def fill_buckets(stock: Stock) -> None:
    """Move the units of a new sale from the product's row to BUCKETS_PER_SALE rows, evenly."""
    units_per_bucket, remainder = divmod(stock.amount, BUCKETS_PER_SALE)
    buckets = []
    for number in range(BUCKETS_PER_SALE):
        amount = units_per_bucket
        if number < remainder:
            amount += 1
        buckets.append(Bucket(sale_id=stock.sale_id, number=number, amount=amount))
    Bucket.objects.bulk_create(buckets)
    Product.objects.filter(pk=stock.product_id).update(amount=0)


def remove_buckets(sale_id: int) -> int:
    """Remove the rows that hold a sale's units, and return the number of units left in them.

    This waits for every purchase that has taken a unit. There is no deadlock: a purchase that has
    locked a bucket only ever waits for another purchase with the same key.
    """
    buckets = Bucket.objects.filter(sale_id=sale_id)
    units_left = sum(buckets.select_for_update().values_list("amount", flat=True))
    buckets.delete()
    return units_left


STRATEGY = Strategy(
    rank=250,
    title="Stock in buckets",
    summary="The stock is split over 16 rows, and each buyer takes from one at random.",
    highlights=("random.choice(", "SET amount = amount - 1 "),
    buy=buy,
    waits_at_write=True,
    reads_again=True,
    backend="postgresql",
    sound=True,
    fill_own_rows=fill_buckets,
    close_sale=remove_buckets,
)
