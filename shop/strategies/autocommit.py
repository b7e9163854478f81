"""FLAW: the code of article A1, without a transaction: each statement commits by itself.

    A reads 1          B reads 1
    A writes 0         B writes 0
    A records an order B records an order: two orders for one unit

The article's shop (docs/sources.md) has no @Transactional, and most tutorials have no atomic().
Without a transaction no isolation level can help: neither SERIALIZABLE in PostgreSQL nor SQLite,
where all transactions are serializable (docs/databases.md). And if a buyer's process dies between
the two writes, a unit is gone without an order.
"""

from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    return sell_one(attempt)


STRATEGY = Strategy(
    rank=15,
    title="No transaction",
    article="A1",
    summary="Read, check, write back, each in its own transaction: no database can help.",
    highlights=("return sell_one(attempt)", "[stock.amount - 1, "),
    buy=buy,
    overselling_schedules=12,
    has_transaction=False,
    backend="none",
    rush_verdict="oversold",
)
