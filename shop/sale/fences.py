"""Claiming a fence, explaining a refused one, and raising fences after a move of Redis.

A fence is the time of the locks' Redis at which the lock was acquired, in microseconds, or the last
fence plus one if that is more. After a move to an empty Redis whose clock is behind, new fences are
lower than the fences in the database. The database then refuses every holder, because it cannot
distinguish new holders from stale ones. Nothing is sold until the clock has caught up, or
raise_fence has run.
"""

import logging

from django.db import connection

from locks.sans_io.protocol import FENCE_TTL, derive_keys
from shop.errors import DatabaseFenceAhead, Lost, SaleClosed, UnknownProduct
from shop.lua import lua
from shop.models import Product
from shop.ops.redis import locks_client
from shop.sale.purchase import AnyLease, Attempt, Stock

logger = logging.getLogger(__name__)

#: Distance of the first new fence from the database's. A holder that acquired the lock before the
#: move, but has not claimed its fence yet, may have a fence above the database's. The difference is
#: at most the time for which a lock can be held, so new fences begin above that.
MARGIN_MICROSECONDS = 60_000_000
#: Lua's numbers are doubles: above this fence, n + 1 may equal n.
LARGEST_FENCE = 2**53 - 2 * MARGIN_MICROSECONDS


def claim_fence_and_read_stock(lease: AnyLease, attempt: Attempt) -> Stock:
    """Claim the fence, so that the database refuses older fences from now on, and read the stock.

    Raises Lost, DatabaseFenceAhead, SaleClosed or UnknownProduct.
    """
    statement = (
        "UPDATE product SET fence = %s WHERE name = %s AND fence < %s AND sale_id IS NOT NULL"
    )
    values = [lease.fence, attempt.product, lease.fence]
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":  # it has no UPDATE ... RETURNING
            cursor.execute(statement, values)
            if not cursor.rowcount:
                raise make_fence_error(attempt, lease)
            # The UPDATE locked the row, so this SELECT reads its current values.
            cursor.execute(
                "SELECT id, sale_id, amount FROM product WHERE name = %s", [attempt.product]
            )
        else:
            cursor.execute(f"{statement} RETURNING id, sale_id, amount", values)
        row = cursor.fetchone()
    if row is None:
        raise make_fence_error(attempt, lease)
    return Stock(*row)


def make_fence_error(attempt: Attempt, lease: AnyLease) -> Lost:
    """Return the exception for a fence that the database refused.

    It is SaleClosed, Lost or DatabaseFenceAhead. Raises UnknownProduct if the product has no sale.

    A later holder's fence is higher than this one by at most the time since this acquisition. A
    fence that is higher by more than that comes from another clock.
    """
    product = Product.objects.filter(name=attempt.product, sale__isnull=False).first()
    if product is None:
        raise UnknownProduct
    if product.fence < (lease.fence or 0):
        return SaleClosed()
    ahead = product.fence - (lease.fence or 0) - round(lease.held_seconds * 1_000_000)
    if ahead <= MARGIN_MICROSECONDS:
        return Lost("fenced off: a newer holder has claimed this product; nothing was sold")
    error = DatabaseFenceAhead(
        f"the database's fence is {ahead / 1_000_000:.0f} s ahead of the locks' Redis, so nothing "
        f"is sold: correct its clock, or run manage.py raise_fence {attempt.product} "
        f"--lock {attempt.lock}"
    )
    logger.error("%s", error)
    return error


def find_blocked_products(lock: str) -> dict[str, float]:
    """Return the products on sale that no holder of this lock can sell, because of the fence.

    The values are the seconds by which the product's fence is ahead of the locks' Redis. Raises
    redis.RedisError.
    """
    client = locks_client()
    seconds, microseconds = client.time()
    now = int(seconds) * 1_000_000 + int(microseconds)
    on_sale = Product.objects.filter(sale__isnull=False, fence__gte=now).order_by("name")
    last_fences = {product: client.get(_key(lock, product.name)) for product in on_sale}
    return {
        product.name: (product.fence - now) / 1_000_000
        for product, last_fence in last_fences.items()
        if last_fence is None or int(last_fence) < product.fence
    }


def raise_fence(lock: str, product: Product) -> bool:
    """Give the next holder of this product's lock a fence above the database's.

    Return whether that was needed. The database's fence is not changed, so holders that it refuses
    now stay refused. Raises redis.RedisError, and OverflowError if the fence is too high for Redis.
    """
    if product.fence > LARGEST_FENCE:
        raise OverflowError(f"{product.fence} is beyond what Redis can count exactly")
    client = locks_client()
    seconds, _ = client.time()
    ahead = product.fence / 1_000_000 - int(seconds)
    memory = max(FENCE_TTL, ahead + FENCE_TTL)
    args: list[str | int] = [
        product.fence,
        product.fence + MARGIN_MICROSECONDS,
        round(memory * 1000),
    ]
    keys = [_key(lock, product.name)]
    return bool(lua("raise_fence")(client, keys, args))


def _key(lock: str, product: str) -> str:
    """Return the key under which RedisLock keeps the last fence that it gave out."""
    return derive_keys(Attempt(product, buyer="", lock=lock).lock_name)[3].decode()
