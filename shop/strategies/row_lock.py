"""SELECT ... FOR UPDATE: the row is locked at the read, until the commit.

This is the pessimistic lock of article A1 (docs/sources.md). The database queues the buyers, and
releases the row when its holder commits, rolls back or dies. So no second server and no ttl are
needed.
"""

from functools import partial

from django.db import transaction

from shop.sale.purchase import Attempt, Receipt, read_stock, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt, read=partial(read_stock, for_update=True))


STRATEGY = Strategy(
    rank=200,
    title="SELECT FOR UPDATE",
    article="A1 pessimistic",
    summary="The database locks the row at the read and releases it at the commit.",
    highlights=("for_update=True)", "select_for_update()"),
    buy=buy,
    holds_row=True,
    backend="postgresql",
    sound=True,
)
