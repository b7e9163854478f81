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
    def read(attempt: Attempt) -> Stock:
        row = Product.objects.select_for_update().get(name=attempt.product)
        if row.fence >= lease.fence:
            raise Lost("a newer holder was here")
        Product.objects.filter(pk=row.pk).update(fence=lease.fence)
        return Stock(row.pk, row.sale_id, row.amount)

    return sell_one(attempt, read=read, fence=lease.fence)


# END
buy = fenced(sell)  # keep
