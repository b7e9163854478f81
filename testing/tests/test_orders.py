"""The orders of steps: each of them once, those with the fewest switches first."""

from testing.orders import count_orders, list_orders
from testing.run import count_switches


def test_two_calls_of_three_steps_have_20_orders() -> None:
    all_orders = list_orders([3, 3], limit=100)
    assert len(all_orders) == len(set(all_orders)) == count_orders([3, 3]) == 20


def test_orders_with_the_fewest_switches_come_first() -> None:
    all_orders = list_orders([3, 3], limit=100)
    assert all_orders[:2] == ["AAABBB", "BBBAAA"]
    switch_counts = [count_switches(order) for order in all_orders]
    assert switch_counts == sorted(switch_counts)


def test_orders_of_three_calls_are_complete() -> None:
    all_orders = list_orders([1, 2, 1], limit=100)
    assert len(set(all_orders)) == count_orders([1, 2, 1]) == 12
    assert all(sorted(order) == list("ABBC") for order in all_orders)


def test_limit_keeps_the_orders_with_the_fewest_switches() -> None:
    assert list_orders([3, 3], limit=4) == list_orders([3, 3], limit=100)[:4]


def test_many_steps_are_cut_off_without_counting_them_all() -> None:
    """Two calls of 30 steps each have more than 10 to the 17th orders."""
    assert len(list_orders([30, 30], limit=50)) == 50
