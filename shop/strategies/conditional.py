"""UPDATE ... WHERE amount > 0: check and decrement in one atomic statement.

This is the shortest correct strategy. In a rush (many buyers at the same moment) a demo can pause
each buyer between the check and the decrement (`hold_ms`). Here that pause comes before the
statement, so no other buyer waits for it. Therefore the duration of such a rush cannot be compared
with that under other strategies.
"""

from django.db import transaction
from django.db.models import F

from shop.errors import SaleClosed, SoldOut
from shop.models import Product
from shop.sale.purchase import Attempt, Receipt, Stock, sell_one
from shop.sale.strategy import Strategy


def decrement_if_in_stock(attempt: Attempt, stock: Stock) -> None:
    """Decrement the stock. Raises SoldOut if it is 0, and SaleClosed if the sale is closed."""
    row = Product.objects.filter(pk=stock.product_id, sale_id=stock.sale_id)
    if not row.filter(amount__gt=0).update(amount=F("amount") - 1):
        raise SoldOut if row.exists() else SaleClosed


def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt, write=decrement_if_in_stock)


STRATEGY = Strategy(
    rank=230,
    title="UPDATE WHERE amount > 0",
    summary="Check and decrement in one statement: no other buyer can come in between.",
    highlights=("filter(amount__gt=0)",),
    buy=buy,
    waits_at_write=True,
    backend="postgresql",
    sound=True,
)
