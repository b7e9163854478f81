"""FLAW: a correct lock, but taken after the first query of a transaction at REPEATABLE READ.

    A begins, looks the product up     B begins, looks the product up
    A locks, reads 1, writes 0         B waits for the lock
    A commits, unlocks
                                       B locks, reads 1: its snapshot is older than A's commit
                                       B writes 0, commits: two orders for one unit

The lock encloses the commit, but not the beginning of the transaction. At REPEATABLE READ, the
default of MySQL's and MariaDB's servers, every plain SELECT of a transaction shows the database as
its first query saw it. At READ COMMITTED, the default of PostgreSQL and of Django on MySQL, each
statement sees what is committed by then, and every unit is sold once. PostgreSQL at REPEATABLE
READ, and MariaDB with snapshot isolation, refuse B's write (docs/databases.md). The first query may
be far from the lock in the code: loading the session, checking a permission, or reading
request.user under ATOMIC_REQUESTS. Take the lock before the transaction (`redis`), or read with a
statement that sees the current row (`lock-then-claim`).
"""

from contextlib import ExitStack

from django.db import transaction

from shop.models import Product
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
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=182,
    title="RedisLock after the first query",
    summary="The lock is taken after a query: wrong at REPEATABLE READ, MySQL's default.",
    highlights=("Product.objects.filter(", "release_after_commit.enter_context("),
    buy=buy,
    renewed=True,
)
