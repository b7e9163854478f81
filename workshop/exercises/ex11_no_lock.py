"""Exercise 11. No lock at all.

Goal: sell each unit once with only the database: no lock, no Redis. In sell_one(attempt, read=...,
write=...), `read` and `write` are functions such as read_stock and write_stock. If nothing is left,
raise SoldOut. More: type help sell_one.
"""

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
    with transaction.atomic():
        return sell_one(attempt, write=write_stock)


# END
