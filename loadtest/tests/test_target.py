"""A shop that is not ours: what is judged of it."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.target import Order
from loadtest.tests.lying_target import Shown, listed, rushed


def test_a_shop_that_sells_its_stock_is_exact() -> None:
    run = rushed(Shown(listed(0, 1, 2, 3), 0), "ssssoo")
    assert (run["verdict"], run["violations"], run["stock_left"]) == ("exact", [], 0)
    assert run["lock"] == "shown"


def test_a_shop_that_takes_more_orders_than_it_has_units_oversells() -> None:
    run = rushed(Shown(listed(0, 1, 2, 3, 4, 5), 3), "ssssss")
    assert (run["verdict"], run["oversold"], run["lost_updates"]) == ("oversold", 2, 5)


def test_orders_of_before_are_not_counted() -> None:
    before = [Order("old-1", "buyer-0"), Order("old-2", "somebody")]
    run = rushed(Shown([*before, *listed(0, 1, 2, 3)], 0, showed=before), "ssssoo")
    assert (run["verdict"], run["orders"]) == ("exact", 4)
    run = rushed(Shown(11, 0, showed=7), "ssssoo")
    assert (run["verdict"], run["orders"]) == ("exact", 4)


@pytest.mark.parametrize("named", [True, False])
def test_an_answer_sold_without_an_order_is_found(named: bool) -> None:
    """Four orders for four units: only the answers show that six were promised one."""
    run = rushed(Shown(listed(0, 1, 2, 3), 0), "ssssss", order=named)
    assert (run["verdict"], run["oversold"]) == ("oversold", 2)
    assert run["violations"] == ["lost_ack"]


def test_an_answer_sold_without_an_order_is_found_in_the_numbers_alone() -> None:
    run = rushed(Shown(4, 0), "ssssss")
    assert (run["verdict"], run["oversold"], run["violations"]) == ("oversold", 2, ["lost_ack"])


@pytest.mark.parametrize("shows", [listed(0, 1, 2), 3])
def test_a_shop_that_hides_an_order_is_not_exact(shows: Any) -> None:
    run = rushed(Shown(shows, 0), "ssssoo")
    assert run["verdict"] == "undersold"
    assert run["violations"] == ["lost_update", "lost_ack", *(["false_sold_out"])]


def test_a_shop_that_hides_the_orders_of_those_it_refused_is_found_by_its_stock() -> None:
    """Three orders are shown, and four units are gone."""
    run = rushed(Shown(listed(0, 1, 2), 0), "sssooo")
    assert run["verdict"] != "exact"
    assert "lost_update" in run["violations"]


def test_an_order_of_somebody_who_was_answered_sold_out_is_found() -> None:
    run = rushed(Shown(listed(0, 1, 2, 5), 0), "ssseoo")
    assert run["verdict"] == "unknown"
    assert "false_sold_out" in run["violations"]
    run = rushed(Shown(listed(0, 1, 2, 5), 0), "sssooo")
    assert run["violations"] == ["false_sold_out"]
    assert run["verdict"] == "unknown"


def test_more_orders_than_buyers_who_can_have_one_are_found_in_the_numbers_alone() -> None:
    run = rushed(Shown(4, 0), "sssooo")
    assert (run["verdict"], run["violations"]) == ("unknown", ["ghost_order"])


def test_an_order_under_another_number_than_the_answer_named_is_found() -> None:
    wrong = [Order("no-9", "buyer-0"), *listed(1, 2, 3)]
    run = rushed(Shown(wrong, 0), "ssssoo", order=True)
    assert (run["verdict"], run["violations"]) == ("unknown", ["lost_ack"])


def test_two_orders_of_one_buyer_are_found() -> None:
    twice = [*listed(0, 1, 2), Order("no-9", "buyer-0")]
    run = rushed(Shown(twice, 0), "sssooo")
    assert (run["verdict"], run["violations"]) == ("unknown", ["double_order"])


@pytest.mark.parametrize(("shows", "orders"), [(listed(0, 1, 2, 3), 4), (4, 4)])
def test_a_lost_answer_or_an_error_leaves_open_who_has_the_order(shows: Any, orders: int) -> None:
    for letter, outcome in (("-", "unknown"), ("e", "error")):
        run = rushed(Shown(shows, 0), f"sss{letter}oo")
        assert (run["verdict"], run["violations"], run["orders"]) == ("unknown", [], orders)
        assert run["outcomes"][outcome] == 1
    assert run["why"] == "1 had no final answer (1 error); the shop says: no such page"


def test_a_sale_that_opens_with_other_units_than_asked_for_is_no_evidence() -> None:
    target = Shown(listed(0, 1, 2, 3), 0)
    target.lefts = [3, 0]
    run = rushed(target, "ssssoo")
    assert (run["verdict"], run["violations"]) == ("unknown", ["wrong_stock"])


def test_what_was_not_judged_is_said() -> None:
    run = rushed(Shown(4, None), "ssssoo")
    assert (run["verdict"], run["stock_left"], run["lost_updates"]) == ("exact", None, None)
    assert len(run["judged"]) == 2
    buyers, stock, keys = run["not_judged"]
    assert "orders() returns a number" in buyers
    assert "there is no stock()" in stock
    assert "no idempotency key" in keys


def test_where_all_is_shown_all_is_judged() -> None:
    target = Shown(listed(0, 1, 2, 3), 0)
    target.repeatable = True
    run = rushed(target, "ssssoo")
    assert (len(run["judged"]), run["not_judged"]) == (4, [])
