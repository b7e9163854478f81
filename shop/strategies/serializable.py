"""SERIALIZABLE: the naive code, and a database that refuses what no order of buyers would give.

The second of two overlapping buyers gets error 40001 and starts again.
"""

from __future__ import annotations

from django.db import connection, transaction

from shop.purchase import Attempt, Receipt, sell_one
from shop.strategies.registry import Strategy, verdicts
from shop.strategies.retrying import until_it_fits


@until_it_fits
def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        return sell_one(attempt)


STRATEGY = Strategy(
    name="serializable",
    title="SERIALIZABLE",
    article="beyond",
    summary="The naive code on the strictest isolation level; conflicts start again.",
    buy=buy,
    sound=True,
    expected=verdicts(
        exact="rush crash slow pause unknown-commit redis-down db-kill shutdown shutdown@short",
    ),
)
