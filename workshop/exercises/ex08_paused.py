"""Exercise 8. Paused.

The holder and its watchdog are paused for longer than the ttl. Goal: a buyer who has lost the lock
gets no unit; raise Lost instead. lease.fence is higher for each new holder; Product has a column
`fence`. In sell_one(attempt, read=..., write=..., fence=...), `read` and `write` are functions such
as read_stock. sell() runs under the lock, inside a transaction. More: type help sell_one.
"""

from workshop.kit import Attempt, Lease, Lost, Product, Receipt, Stock, fenced, read_stock, sell_one


# TODO: as it is, lease.fence is not used.
def sell(attempt: Attempt, lease: Lease) -> Receipt:
    return sell_one(attempt)


# END
buy = fenced(sell)  # keep
