"""FLAW: Redis promises units before PostgreSQL has the orders, and may lose the promises.

One script in Redis takes a unit off the stock and puts a promise on a stream. The buyer is answered
`sold`, with the number of the future order, which PostgreSQL's sequence has given out before.
`manage.py settle` reads the stream and writes the orders to PostgreSQL in batches; this is called
settling. No buyer waits for a row, a lock or a commit:

    A is promised order 12, and answered `sold`
    Redis fails over to a replica without the promise, or restarts without its last second of writes
    B is promised the same unit; A was told the number of an order that will never exist

How many promises can be broken: at most those that were not settled when Redis lost them. Usually
these are the promises made within the settlement lag, the time from a promise to its order. There
are at most SHOP_MOST_UNSETTLED of them, all made within SHOP_LONGEST_UNSETTLED seconds. Two Redis
masters that both sell (fault split-brain) can promise every unsold unit twice. If a buyer repeats
an Idempotency-Key after a day (KEY_LIFETIME_MS), Redis promises a second order, which is never
written, because the key has its first order. There are never more orders than units: settling locks
the product's row and writes no order for which no unit is left. Promises without an order are
logged and counted.

How many units can stay unsold: Redis leaves none, because one script takes the unit and records the
promise. But a failover of PostgreSQL may lose orders whose units Redis counts as sold; `manage.py
reconcile` prints how many.
"""

import time

from shop.reserve import promises
from shop.reserve.settlement_report import read_settlement
from shop.sale.points import point_reached
from shop.sale.purchase import Attempt, Receipt
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    point_reached.send("reserve")
    receipt = promises.promise_unit(attempt)
    point_reached.send(
        "reserved", order=receipt.order_id, amount=receipt.stock_seen, sale=receipt.sale_id
    )
    # Other strategies wait for the payment between the check and the decrement. Here one script
    # in Redis makes both, so the wait for the payment comes afterwards.
    if attempt.payment_seconds and not receipt.replayed:
        time.sleep(attempt.payment_seconds)
    return receipt


STRATEGY = Strategy(
    rank=280,
    title="Reservation in Redis",
    summary="Redis promises units, orders are written later; promises that Redis loses are broken.",
    highlights=("promises.promise_unit(attempt)", 'lua_script("promise"'),
    buy=buy,
    reserves=True,
    deferred=True,
    databases=("postgresql",),
    close_sale=promises.close_sale,
    read_settlement=read_settlement,
)
