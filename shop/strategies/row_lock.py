"""SELECT ... FOR UPDATE: the row is locked at the read, until the commit.

A1's pessimistic lock. The database queues the buyers and releases the row when its holder
commits, rolls back or dies; no second server, no ttl.
"""

from django.db import transaction

from shop.sale.purchase import Attempt, Receipt, Stock, read_stock, sell_one
from shop.sale.strategy import Strategy


def read_for_update(attempt: Attempt) -> Stock:
    return read_stock(attempt, for_update=True)


def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt, read=read_for_update)


STRATEGY = Strategy(
    place=200,
    title="SELECT FOR UPDATE",
    article="A1 pessimistic",
    summary="The database locks the row at the read and releases it at the commit.",
    marks=("for_update=True)", "select_for_update()"),
    buy=buy,
    backend="postgresql",
    sound=True,
)
