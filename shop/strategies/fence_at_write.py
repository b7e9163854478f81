"""FLAW: the fence is checked at the write only, so a stale read still erases an update.

Every holder of RedisLock gets a fence, a number that is higher than that of the holder before. Here
the database checks the fence only when the stock is written, which seems the natural place. The
check refuses a holder once a later holder has written. It does not prevent this order of events:

    A (fence 1) reads 10, is paused, its lease ends
    B (fence 2) reads 10
    A writes 9: fence 1 > 0, accepted
    B writes 9: fence 2 > 1, accepted        two orders, one unit less

The load test's fault `pause` shows this flaw. The strategy `redis` writes its fence to the row
before the read instead. As under `redis`, an asgi node takes the lock in its event loop and calls
only `sell`.
"""

from django.db import transaction

from shop.models import Product
from shop.sale.fences import diagnose_refused_fence
from shop.sale.locked import hold_lock, make_redis_lock
from shop.sale.purchase import AnyLease, Attempt, Receipt, Stock, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    with hold_lock(make_redis_lock(attempt)) as lease:
        receipt = sell(attempt, lease)
    return receipt.with_lease(lease)


def sell(attempt: Attempt, lease: AnyLease) -> Receipt:
    """Sell a unit under a lease that the caller holds."""

    def write_unless_fenced_off(attempt: Attempt, stock: Stock) -> None:
        """Subtract one from the stock that was read, and write it with the fence of the lease.

        Raises a ShopError if the row has this fence or a higher one, or if the sale is closed.
        """
        product_with_lower_fence = Product.objects.filter(
            pk=stock.product_id, sale_id=stock.sale_id, fence__lt=lease.fence
        )
        if not product_with_lower_fence.update(amount=stock.amount - 1, fence=lease.fence):
            raise diagnose_refused_fence(attempt, lease)

    with transaction.atomic(durable=True):
        return sell_one(attempt, write=write_unless_fenced_off, fence=lease.fence)


STRATEGY = Strategy(
    rank=170,
    title="Fence checked at the write",
    summary="Looks right: a stale write is refused, but a write after a stale read is not.",
    highlights=("with hold_lock(make_redis_lock", "fence__lt=lease.fence"),
    buy=buy,
    sell_in_loop=sell,
    renewed=True,
    fenced=True,
)
