"""FLAW: Redis promises the unit before PostgreSQL has the order; what Redis loses was promised.

One script takes a unit and puts the promise on a stream; the buyer is answered `sold`, with the
number that the order will have (drawn from PostgreSQL before). `manage.py settle` writes the orders
in batches. No buyer waits for a row, a lock or a commit:

    A is promised order 12, and answered `sold`
    Redis fails over to a replica without the promise, or restarts without its last second
    B is promised the same unit; A was answered with an order that will never exist

Promised and not kept: at most what was not settled when Redis lost it, so SHOP_MOST_UNSETTLED, and
what is sold in SHOP_LONGEST_UNSETTLED seconds; usually in one settlement lag. Two Redises that both
sell (fault split-brain) promise up to the units that were left once more. A key that comes again
after a day is promised a second order, which is never written: the key has its first one. Never
more orders than units: PostgreSQL refuses a promise without a unit, under the row's lock and its
CHECK; it is logged and counted.
Undersold: nothing by Redis, for a unit and its promise go in one script. Only a failover of
PostgreSQL loses orders whose units Redis counts as sold, as many as it loses; `manage.py reconcile`
says how many.
"""

import time

from shop.reserve import promises
from shop.reserve.settlement_report import read_settlement
from shop.sale.points import point
from shop.sale.purchase import Attempt, Receipt
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    point.send("reserve")
    receipt = promises.promise(attempt)
    point.send("reserved", order=receipt.order_id, amount=receipt.stock_seen, sale=receipt.sale_id)
    if attempt.hold and not receipt.replayed:
        time.sleep(attempt.hold)
    return receipt


STRATEGY = Strategy(
    rank=280,
    title="Reservation in Redis",
    summary="Redis promises units, orders are written later; what Redis loses was promised.",
    marks=("promises.promise(attempt)", 'lua("promise"'),
    buy=buy,
    reserves=True,
    deferred=True,
    databases=("postgresql",),
    close=promises.close_sale,
    settled=read_settlement,
)
