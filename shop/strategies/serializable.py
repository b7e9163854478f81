"""SERIALIZABLE: the naive code; the database aborts what no serial order could have produced.

The second of two overlapping buyers gets error 40001 and starts again.
"""

from django.db import connection, transaction

from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.retrying import until_it_fits
from shop.sale.strategy import Strategy


@until_it_fits
def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        return sell_one(attempt)


STRATEGY = Strategy(
    place=240,
    title="SERIALIZABLE",
    summary="The naive code on the strictest isolation level; conflicts start again.",
    marks=("@until_it_fits", "ISOLATION LEVEL SERIALIZABLE"),
    buy=buy,
    backend="postgresql",
    sound=True,
)
