"""FLAW: the lock is inside the transaction, so it is released before the commit.

    A begins, locks, reads 1, writes 0, unlocks ... and has not committed yet
    B begins, locks, reads 1: what A wrote is not visible yet
    A commits; B writes 0, commits: two orders for one unit

ATOMIC_REQUESTS around a view that takes a perfect lock does the same. By chance a rush sells 100 to
102 of 100 units. The demo delays the commit (point `unlocked_before_commit`), so that every rush
oversells. The remedy is the order in `shop/sale/locked.py`: the lock outside, the transaction
inside. `held` there refuses the order used here, except for this strategy, and `manage.py check`
refuses ATOMIC_REQUESTS.
"""

from django.db import transaction

from shop.sale.locked import held, redis_lock
from shop.sale.points import point
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        with held(redis_lock(attempt), inside_transaction=True, encloses_commit=False) as lease:
            receipt = sell_one(attempt)
        point.send("unlocked_before_commit")
    return receipt.with_lease_facts(lease)


STRATEGY = Strategy(
    rank=180,
    title="RedisLock inside the transaction",
    summary="Looks right: the lock is perfect, and released before the commit.",
    marks=("transaction.atomic(", "with held("),
    buy=buy,
    overselling_schedules=18,
    renewed=True,
    rush="oversold",
)
