"""A version column: write only if the row is unchanged since the read, otherwise read again.

This is the optimistic lock of article A1 (docs/sources.md).

    A reads amount 1, version 7        B reads amount 1, version 7
    A writes WHERE version = 7: 1 row  B writes WHERE version = 7: 0 rows; B reads again: 0 left
"""

from django.db import transaction
from django.db.models import F

from shop.models import Product
from shop.sale.purchase import Attempt, Receipt, Stock, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.conflict_retry import Conflict, retry_on_conflict


def write_if_unchanged(attempt: Attempt, stock: Stock) -> None:
    """Subtract one from the stock that was read, and write it unless the row has changed since.

    Raises Conflict if the row has changed.
    """
    unchanged_row = Product.objects.filter(
        pk=stock.product_id, sale_id=stock.sale_id, version=stock.version
    )
    if not unchanged_row.update(amount=stock.amount - 1, version=F("version") + 1):
        raise Conflict


@retry_on_conflict
def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt, write=write_if_unchanged)


STRATEGY = Strategy(
    rank=210,
    title="Version column",
    article="A1 optimistic",
    summary="Write only if the row is unchanged since the read; otherwise read again.",
    highlights=("version=stock.version", "raise Conflict"),
    buy=buy,
    waits_at_write=True,
    reads_again=True,
    backend="postgresql",
    sound=True,
)
