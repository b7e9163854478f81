"""Exercise 2. Count orders, not stock.

A sale opened with `initial` units. Afterwards it has `orders` orders, and the stock is `left`.
Goal: two functions. The first returns how many units were sold that did not exist. The second
returns how many decrements of the stock were erased by another write.
"""


# TODO: one line each.
def oversold(initial: int, orders: int, left: int) -> int:
    """Return the number of orders beyond the initial stock; never below 0."""


def lost_updates(initial: int, orders: int, left: int) -> int:
    """Return the number of orders whose decrement the stock does not show."""


# END
