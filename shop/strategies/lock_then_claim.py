"""`lock-then-read` without its flaw: the stock is read by a statement that sees the current row.

As in `lock-then-read`, the lock is taken after the first query of a transaction. So at REPEATABLE
READ the snapshot of the transaction may be older than the last sale. Whether an UPDATE uses the
snapshot depends on the database (docs/databases.md):

    MySQL, MariaDB before 11.6.2     an UPDATE ignores the snapshot: it waits for the row, changes
                                     the current row, and the transaction then sees that row
    PostgreSQL, MariaDB from 11.6.2  an UPDATE fails if the row is newer than the snapshot, and the
                                     buyer has to retry

The UPDATE that claims the fence therefore never uses an old stock. To claim the fence is to write
the lease's number to the product's row, unless a later holder has written a higher one (see
redis.py). SELECT ... FOR UPDATE reads the current row in the same way.

Use `redis` if you can: here every buyer who waits for the lock keeps a transaction open.
"""

from contextlib import ExitStack
from functools import partial

from django.db import transaction

from shop.models import Product
from shop.sale.fences import claim_fence_and_read_stock
from shop.sale.locked import hold_lock, make_redis_lock
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    # The lock is taken inside the transaction, but the ExitStack releases it after the commit.
    with ExitStack() as release_after_commit:
        with transaction.atomic(durable=True):
            # The first query of the transaction. At REPEATABLE READ the snapshot begins here.
            Product.objects.filter(name=attempt.product).exists()
            hold_context = hold_lock(make_redis_lock(attempt), inside_transaction=True)
            lease = release_after_commit.enter_context(hold_context)
            receipt = sell_one(
                attempt, read=partial(claim_fence_and_read_stock, lease), fence=lease.fence
            )
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=184,
    title="RedisLock after the first query, with a fence",
    summary="The fence is claimed by an UPDATE, which sees the current row on every database.",
    highlights=("partial(claim_fence_and_read_stock, lease)", "UPDATE product SET fence"),
    buy=buy,
    holds_row=True,
    sound=True,
    renewed=True,
    fenced=True,
)
