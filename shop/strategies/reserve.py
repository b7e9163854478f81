"""FLAW: Redis promises units before PostgreSQL has the orders. What Redis loses was promised.

One script takes a unit and puts the promise on a stream. The buyer is answered `sold`, with the
number that the order will have, which was drawn from PostgreSQL before. `manage.py settle` writes
the orders in batches. No buyer waits for a row, a lock or a commit:

    A is promised order 12, and answered `sold`
    Redis fails over to a replica without the promise, or restarts without its last second
    B is promised the same unit; A was answered with an order that will never exist

Broken promises: at most those that were unsettled when Redis lost them. These are usually those of
one settlement lag, at most SHOP_MOST_UNSETTLED, and at most those of SHOP_LONGEST_UNSETTLED
seconds. Two Redises that both sell (fault split-brain) can promise every unsold unit twice. A key
that is repeated after a day is promised a second order, which is never written, because the key has
its first order. There are never more orders than units: PostgreSQL refuses a promise without a
unit, under the row's lock and its CHECK, and the refusal is logged and counted.

Undersold units: none by Redis, because one script takes the unit and records the promise. But a
failover of PostgreSQL may lose orders whose units Redis counts as sold; `manage.py reconcile` says
how many.
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
    summary="Redis promises units, orders are written later; promises that Redis loses are broken.",
    marks=("promises.promise(attempt)", 'lua("promise"'),
    buy=buy,
    reserves=True,
    deferred=True,
    databases=("postgresql",),
    close=promises.close_sale,
    settled=read_settlement,
)
