"""SERIALIZABLE: the code of `none`, but the database aborts transactions that conflict.

The database allows only outcomes that are possible if the transactions run one after another. If
two buyers read and write the same row at the same time, the second buyer gets error 40001 and
starts again.
"""

from django.db import connection, transaction

from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.conflict_retry import retry_on_conflict


@retry_on_conflict
def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        if connection.vendor != "sqlite":  # SQLite's transactions are always serializable
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        return sell_one(attempt)


STRATEGY = Strategy(
    rank=240,
    title="SERIALIZABLE",
    summary="The naive code at the strictest isolation level; a buyer retries after a conflict.",
    highlights=("@retry_on_conflict", "ISOLATION LEVEL SERIALIZABLE"),
    buy=buy,
    waits_at_write=True,
    reads_again=True,
    backend="postgresql",
    sound=True,
)
