"""pg_advisory_xact_lock: a lock by name in the database, until the commit.

A1's database lock without a row to hang it on. The `xact` form ends with the transaction; a
session's lock would be stranded behind a connection pooler.
"""

from django.db import connection, transaction

from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [attempt.lock_name]
            )
        return sell_one(attempt)


STRATEGY = Strategy(
    rank=190,
    title="Advisory lock",
    article="A1 database lock",
    summary="A lock by name in PostgreSQL that ends with the transaction.",
    marks=("pg_advisory_xact_lock",),
    buy=buy,
    backend="postgresql",
    sound=True,
)
