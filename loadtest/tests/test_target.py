"""A shop that is not ours: what is judged of it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from loadtest.judge.run import Run
from loadtest.report.tables import sentences
from loadtest.target import Order, TargetError
from loadtest.target.target import Orders
from loadtest.tests.lying_target import STOCK, Shown, listed, rushed


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


def test_an_answer_with_the_number_of_an_order_that_is_not_there_was_promised_a_unit() -> None:
    """Four orders for four units: only the answers show that six were promised one."""
    run = rushed(Shown(listed(0, 1, 2, 3), 0), "ssssss", order=True)
    assert (run["verdict"], run["oversold"]) == ("oversold", 2)
    assert run["violations"] == ["lost_ack"]


@pytest.mark.parametrize("shows", [listed(0, 1, 2, 3), 4])
def test_an_answer_that_was_read_as_sold_and_names_no_order_accuses_nobody(shows: Any) -> None:
    """The shop lied, or read() took a refusal for a sale: that is not known."""
    run = rushed(Shown(shows, 0), "ssssss")
    assert (run["verdict"], run["oversold"], run["violations"]) == ("unknown", 0, ["lost_ack"])
    assert run["why"] == "rush/buyer-4 was answered sold, without a number; there is none (1 more)"


def test_orders_that_name_buyers_by_the_shops_own_ids_are_matched_by_their_numbers() -> None:
    shows = [Order(f"no-{number + 1}", f"700{number}") for number in range(4)]
    run = rushed(Shown(shows, 0), "ssssoo", order=True)
    assert (run["verdict"], run["violations"]) == ("exact", [])
    run = rushed(Shown([*shows, Order("no-9", "7009")], 0), "ssssoo", order=True)
    assert (run["verdict"], run["oversold"]) == ("oversold", 1)


def test_orders_that_name_nobody_of_the_rush_are_a_fault_of_the_target() -> None:
    shows = [Order(number, str(7001 + number)) for number in range(4)]
    with pytest.raises(TargetError, match=r"orders\(\) names '7001', and no buyer of this rush"):
        rushed(Shown(shows, 0), "ssssoo")


@pytest.mark.parametrize("named", [True, False])
def test_orders_under_the_names_of_others_are_no_oversell(named: bool) -> None:
    """As many orders as units: two of them are somebody else's."""
    swapped = [*listed(0, 1), Order("no-3", "buyer-4"), Order("no-4", "buyer-5")]
    run = rushed(Shown(swapped, 0), "sssseo", order=named)
    assert (run["verdict"], run["oversold"]) == ("unknown", 0)
    assert "lost_ack" in run["violations"]


def test_a_number_that_is_given_as_text_is_that_number() -> None:
    shows = [Order(number, f"buyer-{number - 1}") for number in (1, 2, 3, 4)]
    target = Shown(shows, 0)
    run = rushed(target, "ssssoo", order=True, called="{}")
    assert (run["verdict"], run["violations"]) == ("exact", [])


def test_the_sentences_of_all_findings_are_in_the_run() -> None:
    run = rushed(Shown(listed(0, 1, 2), 0), "ssssoo")
    assert run["verdict"] == "undersold"
    lost = "rush/buyer-3 was answered sold, without a number; there is none"
    assert run["findings"][1] == lost
    assert f"shown: {lost}" in sentences(cast(Run, run))


class Queued(Shown):
    """Has one order more each time that it is asked, as a queue is worked off."""

    settles_s = 5.0
    written = -1

    def orders(self) -> Orders:
        self.written = min(STOCK, self.written + 1)
        return listed(*range(self.written))


def test_orders_that_are_written_after_the_answers_are_waited_for() -> None:
    assert rushed(Queued([], 0), "ssssoo")["verdict"] == "exact"


def test_a_queue_that_never_ends_is_waited_for_so_long_and_no_longer() -> None:
    target = Shown(listed(0, 1, 2, 3), 0)
    target.settles_s, target.lefts = 0.2, [STOCK, 0]
    target.unsettled = lambda: 3  # type: ignore[method-assign]
    run = rushed(target, "ssssoo")
    assert (run["verdict"], run["violations"]) == ("unknown", ["unsettled"])


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


@pytest.mark.parametrize("opened", [3, 40])
def test_a_target_that_opens_a_sale_of_other_units_is_refused_before_the_rush(opened: int) -> None:
    target = Shown(listed(0, 1, 2, 3), 0)
    target.lefts = [opened, 0]
    with pytest.raises(TargetError, match=rf"open\(4\) put up {opened} units, by stock\(\)"):
        rushed(target, "ssssoo")


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
