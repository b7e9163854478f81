"""SELECT ... FOR UPDATE: the row is locked at the read, until the commit.

A1's pessimistic lock. The database queues the buyers and lets go of the row by itself when its
holder commits, rolls back or dies; no second server, no ttl.
"""

from __future__ import annotations

from django.db import transaction

from shop.purchase import Attempt, Receipt, Stock, read_stock, sell_one
from shop.strategies.registry import Strategy, verdicts


def read_for_update(attempt: Attempt) -> Stock:
    return read_stock(attempt, for_update=True)


def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt, read=read_for_update)


STRATEGY = Strategy(
    name="row-lock",
    title="SELECT FOR UPDATE",
    article="A1 pessimistic",
    summary="The database locks the row at the read and lets go of it at the commit.",
    buy=buy,
    sound=True,
    expected=verdicts(
        exact="rush crash slow pause unknown-commit redis-down db-kill shutdown shutdown@short",
    ),
)
