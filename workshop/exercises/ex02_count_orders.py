"""Exercise 2. Count orders, not stock.

A sale opened with `initial` units. Afterwards there are `orders` orders, and the shelf says `left`.
Goal: two functions that say how many units were sold that were not there, and how many decrements
another write erased.
"""


# TODO: one line each.
def oversold(initial: int, orders: int, left: int) -> int:
    """Orders beyond the initial stock; never below 0."""


def lost_updates(initial: int, orders: int, left: int) -> int:
    """Orders whose decrement the stock does not show."""


# END
