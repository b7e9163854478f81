"""FLAW: the fence is checked at the write only, so a stale read still erases an update.

RedisLock and its fence, as many would add it. It stops a holder that comes after a later one has
written. It does not stop this schedule:

    A (fence 1) reads 10, is paused, its lease ends
    B (fence 2) reads 10
    A writes 9: fence 1 > 0, accepted
    B writes 9: fence 2 > 1, accepted        two orders, one unit less

The fault `pause` shows it. `redis` claims the fence at the read instead.
"""

from shop.models import Product
from shop.sale.fences import refusal
from shop.sale.locked import redis_lock, sell_under
from shop.sale.points import Held
from shop.sale.purchase import Attempt, Receipt, Stock, sell_one
from shop.sale.strategy import Strategy


def sell(attempt: Attempt, lease: Held) -> Receipt:
    def write_unless_fenced_off(attempt: Attempt, stock: Stock) -> None:
        not_fenced_off = Product.objects.filter(
            pk=stock.product_id, sale_id=stock.sale_id, fence__lt=lease.fence
        )
        if not not_fenced_off.update(amount=stock.amount - 1, fence=lease.fence):
            raise refusal(attempt, lease)

    return sell_one(attempt, write=write_unless_fenced_off, fence=lease.fence)


STRATEGY = Strategy(
    place=170,
    title="Fence checked at the write",
    summary="Looks right: a stale write is refused, but what was read before is not.",
    marks=("lock.hold(wait=", "fence__lt=lease.fence"),
    buy=sell_under(redis_lock, sell),
    renewed=True,
    fenced=True,
)
