"""FLAW: two buyers read the same stock, and both sell it (a lost update).

    A reads 1          B reads 1
    A writes 0         B writes 0
    A records an order B records an order: two orders for one unit

This is the first purchase of article A1 (docs/sources.md). As long as buyers come one after
another, the shop sells correctly. If many buyers come at the same moment, it oversells.
"""

from django.db import transaction

from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt)


STRATEGY = Strategy(
    rank=10,
    title="No lock",
    article="A1",
    summary="Read, check, write back: two buyers who read the same stock both sell it.",
    highlights=("stock = read(attempt)", "[stock.amount - 1, "),
    buy=buy,
    overselling_schedules=18,
    waits_at_write=True,
    backend="none",
    rush_verdict="oversold",
)
