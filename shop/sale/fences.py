"""The check of fencing tokens (fences) by the database.

A fence is a number that is higher for every later holder of a lock. A holder claims its fence by
writing it to the product's row, unless the row has a higher one. RedisLock uses the time of the
locks' Redis at which the lock was acquired, in microseconds, or the last fence plus one if that is
more.

After a move to an empty Redis whose clock is behind, new fences are lower than those in the
database. The database then refuses every holder, because it cannot distinguish new holders from
stale holders. Nothing is sold until the clock has caught up, or an operator has set the fence in
the database to 0 (docs/production.md).
"""

import logging

from django.db import connection

from locks.sans_io.protocol import derive_keys
from shop.errors import DatabaseFenceAhead, Lost, SaleClosed, ShopError, UnknownProduct
from shop.models import Product
from shop.ops.redis import locks_client
from shop.sale.purchase import AnyLease, Attempt, Stock

logger = logging.getLogger(__name__)

#: Tolerance for the comparison of a refused fence with the fence in the database. The fence of a
#: later holder exceeds the refused fence by at most the time since the refused holder acquired the
#: lock. If it exceeds that by more than this tolerance, it comes from another clock.
MAX_CLOCK_DRIFT_MICROSECONDS = 60_000_000
#: The operator's remedy for a fence that another clock has set too high.
FENCE_AHEAD_REMEDY = (
    "correct its clock, or set the fence to 0 while every node is stopped "
    "(docs/production.md#the-fence-in-the-database-is-ahead)"
)


def claim_fence_and_read_stock(lease: AnyLease, attempt: Attempt) -> Stock:
    """Claim the lease's fence by writing it to the product's row, and read the stock.

    A fence is a number that is higher for every later holder of the lock. From now on the database
    refuses holders with lower fences. Raises Lost, DatabaseFenceAhead, SaleClosed or
    UnknownProduct.
    """
    statement = (
        "UPDATE product SET fence = %s WHERE name = %s AND fence < %s AND sale_id IS NOT NULL"
    )
    parameters = [lease.fence, attempt.product, lease.fence]
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":  # it has no UPDATE ... RETURNING
            cursor.execute(statement, parameters)
            if not cursor.rowcount:
                raise diagnose_refused_fence(attempt, lease)
            # The UPDATE locked the row, so this SELECT reads its current values.
            cursor.execute(
                "SELECT id, sale_id, amount FROM product WHERE name = %s", [attempt.product]
            )
        else:
            cursor.execute(f"{statement} RETURNING id, sale_id, amount", parameters)
        row = cursor.fetchone()
    if row is None:
        raise diagnose_refused_fence(attempt, lease)
    return Stock(*row)


def diagnose_refused_fence(attempt: Attempt, lease: AnyLease) -> ShopError:
    """Find out why the database refused the fence of a lease. Return an exception to raise.

    UnknownProduct      the product is not on sale
    SaleClosed          the sale was closed, and another sale has been opened since
    Lost                a later holder has claimed the product
    DatabaseFenceAhead  the product's fence comes from another clock; this is logged, too

    A fence is the time of the acquisition, in microseconds. The fence of a later holder exceeds the
    refused fence by the time between the two acquisitions, which is at most `lease.held_seconds`.
    If the fence in the database exceeds that by more than MAX_CLOCK_DRIFT_MICROSECONDS, it comes
    from another clock.
    """
    product = Product.objects.filter(name=attempt.product, sale__isnull=False).first()
    if product is None:
        return UnknownProduct()
    fence = lease.fence or 0  # for the type only: a refused lease has a fence
    if product.fence < fence:
        # The fence is high enough, so the reason was that the product's sale had been closed.
        return SaleClosed()
    ahead_microseconds = product.fence - fence - round(lease.held_seconds * 1_000_000)
    if ahead_microseconds <= MAX_CLOCK_DRIFT_MICROSECONDS:
        return Lost(
            "fenced off, because a newer holder has claimed this product; nothing was sold: retry "
            "with the same key"
        )
    error = DatabaseFenceAhead(
        f"the database's fence of {attempt.product} is {ahead_microseconds / 1_000_000:.0f} s "
        f"ahead of the locks' Redis, so nothing is sold: {FENCE_AHEAD_REMEDY}"
    )
    logger.error("%s", error)
    return error


def find_blocked_products(lock: str) -> dict[str, float]:
    """Return the products that cannot be sold, because their fences in the database are too high.

    A fence is a time by the clock of the locks' Redis. The database refuses a holder whose fence is
    lower than that of the product. Return a dict: name of the product -> seconds by which its fence
    is ahead of the clock. Raises redis.RedisError.

    lock  name of the strategy that sells
    """
    client = locks_client()
    seconds, microseconds = client.time()
    now_microseconds = int(seconds) * 1_000_000 + int(microseconds)
    products_ahead = Product.objects.filter(sale__isnull=False, fence__gte=now_microseconds)
    last_fences = {
        product: client.get(_fence_key(lock, product.name))
        for product in products_ahead.order_by("name")
    }
    # The next fence of Redis will be higher than its last fence. So if the last fence has reached
    # the product's fence, the database accepts the next fence.
    return {
        product.name: (product.fence - now_microseconds) / 1_000_000
        for product, last_fence in last_fences.items()
        if last_fence is None or int(last_fence) < product.fence
    }


def _fence_key(lock: str, product: str) -> str:
    """Return the Redis key under which RedisLock stores the last fence of a product's lock."""
    _, _, _, fence_key = derive_keys(Attempt(product, buyer="", lock=lock).lock_name)
    return fence_key.decode()
