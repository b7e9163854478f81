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
    from django.db import connection

    def read(attempt: Attempt) -> Stock:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE product SET fence = %s WHERE name = %s AND fence < %s "
                "RETURNING id, sale_id, amount",
                [lease.fence, attempt.product, lease.fence],
            )
            row = cursor.fetchone()
        if row is None:
            raise Lost("a newer holder was here")
        return Stock(*row)

    return sell_one(attempt, read=read, fence=lease.fence)


# END
buy = fenced(sell)  # keep
