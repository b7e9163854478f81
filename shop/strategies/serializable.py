"""SERIALIZABLE: the naive code; the database aborts what no serial order could have produced.

The second of two overlapping buyers gets error 40001 and starts again.
"""

from django.db import connection, transaction

from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.conflict_retry import retry_on_conflict


@retry_on_conflict
def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        if connection.vendor != "sqlite":  # its transactions always are
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        return sell_one(attempt)


STRATEGY = Strategy(
    rank=240,
    title="SERIALIZABLE",
    summary="The naive code on the strictest isolation level; conflicts start again.",
    marks=("@retry_on_conflict", "ISOLATION LEVEL SERIALIZABLE"),
    buy=buy,
    waits_at_write=True,
    reads_again=True,
    backend="postgresql",
    sound=True,
)
