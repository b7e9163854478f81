"""The orders of steps: each of them once, the simplest first."""

from testing.orders import count_orders, orders
from testing.run import switches


def test_two_calls_of_three_steps_have_20_orders() -> None:
    all_orders = orders([3, 3], limit=100)
    assert len(all_orders) == len(set(all_orders)) == count_orders([3, 3]) == 20


def test_those_with_the_fewest_switches_come_first() -> None:
    all_orders = orders([3, 3], limit=100)
    assert all_orders[:2] == ["AAABBB", "BBBAAA"]
    assert [switches(order) for order in all_orders] == sorted(
        switches(order) for order in all_orders
    )


def test_three_calls_count_too() -> None:
    all_orders = orders([1, 2, 1], limit=100)
    assert len(set(all_orders)) == count_orders([1, 2, 1]) == 12
    assert all(sorted(order) == list("ABBC") for order in all_orders)


def test_limit_keeps_the_simplest() -> None:
    assert orders([3, 3], limit=4) == orders([3, 3], limit=100)[:4]


def test_many_steps_are_cut_off_without_counting_them_all() -> None:
    """30 steps each have 10 to the 17th orders."""
    assert len(orders([30, 30], limit=50)) == 50
