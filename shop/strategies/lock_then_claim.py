"""The cure for `lock-then-read`: the stock is read by a statement that sees the current row.

As in `lock-then-read`, the lock is taken after the first query of a transaction, so at REPEATABLE
READ the snapshot may be older than the last sale. But an UPDATE does not read from the snapshot: it
waits for the row and changes the current row, and a transaction sees its own changes. The UPDATE
that claims the fence is such a statement; SELECT ... FOR UPDATE is another. A database that checks
snapshots (MariaDB from 11.6.2, PostgreSQL) instead refuses an UPDATE from an old snapshot, and the
buyer retries (docs/databases.md).

Use `redis` if you can: here every buyer who waits for the lock keeps a transaction open.
"""

from contextlib import ExitStack
from functools import partial

from django.db import transaction

from shop.models import Product
from shop.sale.fences import claim_fence_and_read_stock
from shop.sale.locked import held, redis_lock
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    with ExitStack() as release_after_commit:
        with transaction.atomic(durable=True):
            Product.objects.filter(name=attempt.product).exists()  # the snapshot begins here
            hold_context = held(redis_lock(attempt), inside_transaction=True)
            lease = release_after_commit.enter_context(hold_context)
            receipt = sell_one(
                attempt, read=partial(claim_fence_and_read_stock, lease), fence=lease.fence
            )
    return receipt.with_lease_facts(lease)


STRATEGY = Strategy(
    rank=184,
    title="RedisLock after the first query, with a fence",
    summary="The fence is claimed by an UPDATE, which sees the current row on every database.",
    marks=("partial(claim_fence_and_read_stock, lease)", "UPDATE product SET fence"),
    buy=buy,
    holds_row=True,
    sound=True,
    renewed=True,
    fenced=True,
)
