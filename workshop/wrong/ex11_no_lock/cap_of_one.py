# REFUSED rush-gave-up
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
class Changed(Exception):
    pass


def write(attempt: Attempt, stock: Stock) -> None:
    same = Product.objects.filter(pk=stock.product_id, amount=stock.amount)
    if not same.update(amount=stock.amount - 1):
        raise Changed


def buy(attempt: Attempt) -> Receipt:
    for _ in range(2):
        try:
            with transaction.atomic():
                return sell_one(attempt, write=write)
        except Changed:
            continue
    raise SoldOut("too many others")


# END
