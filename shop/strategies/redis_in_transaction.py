"""FLAW: the lock is inside the transaction, so it is released before the commit.

    A begins, locks, reads 1, writes 0, unlocks ... and has not committed yet
    B begins, locks, reads 1: what A wrote is not visible yet
    A commits; B writes 0, commits: two orders for one unit

ATOMIC_REQUESTS around a view that takes a correct lock has the same effect. If many buyers want 100
units at the same moment, 100 to 102 orders are made, by chance. The demo delays the commit (at the
point `unlocked_before_commit`, see shop/sale/points.py), so that such a rush always oversells. The
remedy is to take the lock first and to begin the transaction inside it. So `hold_lock` in
shop/sale/locked.py refuses to take a lock inside a transaction, unless `inside_transaction` is
True, and `manage.py check` refuses ATOMIC_REQUESTS.
"""

from django.db import transaction

from shop.sale.locked import hold_lock, make_redis_lock
from shop.sale.points import point_reached
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        lock = make_redis_lock(attempt)
        # This strategy's flaw: the lock is released before the transaction is committed.
        with hold_lock(lock, inside_transaction=True, encloses_commit=False) as lease:
            receipt = sell_one(attempt)
        point_reached.send("unlocked_before_commit")  # a demo can delay the commit here
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=180,
    title="RedisLock inside the transaction",
    summary="Looks right: the lock is correct, but it is released before the commit.",
    highlights=("transaction.atomic(", "with hold_lock("),
    buy=buy,
    overselling_schedules=18,
    renewed=True,
    rush_verdict="oversold",
)
