# REFUSED fence-at-write
"""Exercise 8. Paused.

The holder stands still past its ttl, watchdog and all, and goes on as if nothing had happened.
Goal: whoever has lost the lock sells nothing. lease.fence is higher for each new holder; Product
has a column `fence`. sell_one(attempt, read=..., write=..., fence=...) takes functions like
read_stock.
"""

from __future__ import annotations

from workshop.kit import Attempt, Lease, Lost, Product, Receipt, Stock, fenced, read_stock, sell_one


# TODO: as it is, the database believes whoever writes.
def sell(attempt: Attempt, lease: Lease) -> Receipt:
    def write(attempt: Attempt, stock: Stock) -> None:
        mine = Product.objects.filter(pk=stock.product_id, fence__lt=lease.fence)
        if not mine.update(amount=stock.amount - 1, fence=lease.fence):
            raise Lost("a newer holder was here")

    newer = Product.objects.filter(name=attempt.product, fence__gt=lease.fence)
    if newer.exists():
        raise Lost("a newer holder was here")
    return sell_one(attempt, write=write, fence=lease.fence)


# END
buy = fenced(sell)  # keep
