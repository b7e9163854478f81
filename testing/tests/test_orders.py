"""Tests of the orders of the calls' steps: each order once, the fewest switches first.

An order is a word such as AABB, with a letter for each step of a call. A switch is a step of
another call than the step before. list_orders([3, 3]) lists the orders of two calls with three
steps each.
"""

from itertools import islice, permutations

import pytest

from testing.orders import count_orders, generate_orders, list_orders, make_call_name
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


def test_limit_of_many_orders_is_reached_without_listing_them_all() -> None:
    """Two calls of 30 steps each have more than 10 to the 17th orders."""
    assert len(list_orders([30, 30], limit=50)) == 50


def list_orders_by_brute_force(step_counts: list[int]) -> list[str]:
    """Return every order of the calls' steps, such as AABB.

    The orders are sorted by their number of switches between the calls, and then alphabetically.

    step_counts  the number of steps of each call
    """
    steps = "".join(make_call_name(number) * count for number, count in enumerate(step_counts))
    orders = {"".join(order) for order in permutations(steps)}
    return sorted(orders, key=lambda order: (count_switches(order), order))


@pytest.mark.parametrize(
    "step_counts", [[1, 1], [3, 3], [4, 4], [1, 6], [6, 1], [2, 2, 2], [1, 4, 2], [2, 1, 1, 2]]
)
@pytest.mark.parametrize("limit", [0, 1, 7, 1_000])
def test_orders_are_those_of_brute_force(step_counts: list[int], limit: int) -> None:
    assert list_orders(step_counts, limit) == list_orders_by_brute_force(step_counts)[:limit]


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_below_one_gives_no_order(limit: int) -> None:
    assert list_orders([30, 30], limit) == []


@pytest.mark.parametrize("step_counts", [[50, 50], [520, 520], [1, 600], [600, 1], [40, 40, 40]])
def test_first_orders_of_many_steps_are_listed_quickly(step_counts: list[int]) -> None:
    """Searching through all beginnings would take minutes or exceed the recursion limit."""
    orders = list_orders(step_counts, limit=200)
    assert len(set(orders)) == 200
    assert {len(order) for order in orders} == {sum(step_counts)}


def test_orders_are_generated_one_by_one() -> None:
    """There are more than 10 to the 300th orders, and only the first is generated."""
    assert list(islice(generate_orders([520, 520]), 1)) == ["A" * 520 + "B" * 520]
