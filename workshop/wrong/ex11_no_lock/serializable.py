# REFUSED conflict-not-retried
"""Exercise 11. No lock at all.

Goal: sell right with the database alone: no lock, no Redis. sell_one(attempt, read=..., write=...)
takes functions like read_stock and write_stock; SoldOut is the refusal.
"""

from __future__ import annotations

from workshop.kit import (
    Attempt,
    F,
    Product,
    Receipt,
    SoldOut,
    Stock,
    read_stock,
    sell_one,
    transaction,
    write_stock,
)


# TODO: as it is, the last writer wins.
def buy(attempt: Attempt) -> Receipt:
    from django.db import connection

    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        return sell_one(attempt)


# END
