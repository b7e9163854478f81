"""The orders of third-party shops.

Numbers in two spellings, orders from before the rush, numbers that are used twice, buyers without
names, and stock that falls late.
"""

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from loadtest.commands.target import merge_scopes
from loadtest.target import Order, TargetError
from loadtest.target.sale_counter import POLL_INTERVAL_SECONDS
from loadtest.target.target import Orders
from loadtest.tests.test_target import (
    STOCK,
    ShownTarget,
    list_orders,
    make_rush,
    rush_and_judge,
    rush_with_numbers,
)

UUIDS = [UUID(int=number + (9 << 100)) for number in range(STOCK)]


def orders_of(numbers: Sequence[object]) -> list[Order]:
    """Return an order of each of the first buyers."""
    return [Order(cast(Any, number), f"buyer-{n}") for n, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("spelling", "books"),
    [
        ("00010{}", [101, 102, 103, 104]),
        ("#10{}", [101, 102, 103, 104]),
        ("KITE-00010{}", [101, 102, 103, 104]),
        ("10{}.0", [101, 102, 103, 104]),
        ("10{}", [101.0, 102.0, 103.0, 104.0]),
        ("kite-{}x", ["KITE-1X", "KITE-2X", "KITE-3X", "KITE-4X"]),
        ("K{}", ["K1        ", "K2        ", "K3        ", "K4        "]),
        ("00009000-0000-0000-0000-00000000000{}", [f"{9 << 108 | n:032x}" for n in (1, 2, 3, 4)]),
    ],
    ids=["zeros", "sharp", "reference", "float", "float in the books", "capitals", "CHAR", "UUID"],
)
def test_numbers_are_compared_as_the_shop_means_them(spelling: str, books: list[object]) -> None:
    run = rush_and_judge(ShownTarget(orders_of(books), 0), "ssssoo", order=True, spelling=spelling)
    assert (run["verdict"], run["findings"]) == ("exact", [])


@pytest.mark.parametrize("books", [["a", "b", "c", "d"], ["A-1", "B-1", "C-1", "D-1"]])
def test_other_names_of_orders_are_the_targets_fault(books: list[object]) -> None:
    """The message quotes the two spellings as they are."""
    with pytest.raises(TargetError) as refused:
        rush_and_judge(ShownTarget(orders_of(books), 0), "ssssoo", order=True, spelling="KITE-{}")
    assert f"names an order 'KITE-1', and orders() names that buyer's only order {books[0]!r}" in (
        str(refused.value)
    )


def test_finding_quotes_the_words_of_the_shop() -> None:
    """This holds if one number of several differs, and if only the count is known."""
    books = orders_of(["no-1", "no-2", "no-3", "other"])
    run = rush_and_judge(ShownTarget(books, 0), "ssssoo", order=True)
    assert run["findings"] == ["rush/buyer-3 was answered with order no-4; it has order other"]
    run = rush_and_judge(ShownTarget(STOCK, 0), "sssooo")
    assert run["findings"] == ["order 4 of 4 names no buyer, and no answer is about it"]


# --- orders of before the rush --------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["no-{}", "#no-{}"])
@pytest.mark.parametrize("new", [list_orders(4, 5), []])
def test_earlier_order_leaves_no_verdict(new: list[Order], spelling: str) -> None:
    """The shop shows returning customers their existing order."""
    before = list_orders(0, 1, 2, 3)
    target = ShownTarget([*before, *new], STOCK - len(new), showed=before)
    with pytest.raises(TargetError) as refused:
        rush_and_judge(target, "ssssss" if new else "ssssoo", order=True, spelling=spelling)
    assert "buyer-0 was answered with order no-1, and buyer-0 had order no-1 before this rush" in (
        str(refused.value)
    )
    assert "log in with buyer.key, which is new in every rush" in str(refused.value)


def test_unnumbered_answer_about_an_earlier_order_is_no_verdict() -> None:
    before = list_orders(0, 1)
    target = ShownTarget([*before, *list_orders(2, 3)], STOCK - 2, showed=before)
    with pytest.raises(TargetError, match="buyer-0 was answered sold, and buyer-0 had order no-1"):
        rush_and_judge(target, "ssss")


def test_returning_customer_may_have_a_second_order() -> None:
    before = [Order(f"old-{number}", f"buyer-{number}") for number in range(6)]
    run = rush_and_judge(
        ShownTarget([*before, *list_orders(0, 1, 2, 3)], 0, showed=before),
        "ssssoo",
        order=True,
    )
    assert run["verdict"] == "exact"


# --- one number for several orders ----------------------------------------------------------------


def test_number_of_two_buyers_is_a_violation_of_the_shop() -> None:
    books = [*list_orders(0, 1, 2), Order("no-3", "buyer-3")]
    run = rush_and_judge(ShownTarget(books, 0), "ssssoo")
    assert (run["verdict"], run["violations"]) == ("unknown", ["double_number"])
    assert run["why"].startswith("order no-3 belongs to rush/buyer-2 and rush/buyer-3; if ")
    assert run["why"].endswith("let orders() name the primary key")


def test_numbers_from_1_for_each_buyer_are_new_in_each_rush() -> None:
    """An order is identified by its number and its buyer."""
    before = [Order(1, f"buyer-{number}") for number in range(2)]
    new = [Order(2, "buyer-0"), Order(2, "buyer-1"), Order(1, "buyer-2"), Order(1, "buyer-3")]
    run = rush_and_judge(ShownTarget([*before, *new], 0, showed=before), "ssssoo")
    assert (run["orders"], run["violations"]) == (4, ["double_number"])


def test_order_listed_twice_is_the_targets_fault() -> None:
    with pytest.raises(TargetError) as refused:
        rush_and_judge(ShownTarget(list_orders(0, 1, 2, 3, 2), 0), "ssssoo")
    assert "do two pages of it overlap?" in str(refused.value)
    assert "name each by its primary key" in str(refused.value)


# --- buyers without names -------------------------------------------------------------------------


def test_orders_of_guests_are_known_by_their_numbers() -> None:
    """Some orders name a buyer, one names no buyer, and one an e-mail address."""
    books = [
        *list_orders(0, 1),
        Order("no-3", cast(Any, None)),
        Order("no-4", "a@example.com"),
    ]
    run = rush_and_judge(ShownTarget(books, 0), "ssssoo", order=True)
    assert (run["verdict"], run["findings"]) == ("exact", [])
    assert run["judged"][-1] == (
        "2 orders name no buyer of the rush: they are known by the number in the answer"
    )


def test_order_of_a_guest_that_no_answer_names_is_a_ghost() -> None:
    books = [*list_orders(0, 1, 2), Order("no-9", "a@example.com")]
    run = rush_and_judge(ShownTarget(books, 0), "sssooo", order=True)
    assert (run["verdict"], run["violations"]) == ("unknown", ["ghost_order"])


GUESTS = [Order(f"no-{number}", cast(Any, None)) for number in (3, 4, 5, 6)]


def test_two_numberings_of_guests_orders_are_no_oversell() -> None:
    """The numbers in the answers and those of the orders are two sequences that overlap."""
    run = rush_and_judge(ShownTarget(GUESTS, 0), "ssssoo", order=True)
    assert (run["verdict"], run["violations"]) == ("unknown", ["lost_ack", "ghost_order"])
    assert (
        "an answer names an order 'no-1', which orders() does not list, and orders() lists an "
        "order 'no-5', which no answer names"
    ) in run["findings"][-1]
    assert not [text for text in run["findings"] if "None" in text]


def test_more_answers_than_guests_orders_are_an_oversell() -> None:
    """Four orders explain four answers, whatever their numbers. Two more units were promised."""
    run = rush_and_judge(ShownTarget(GUESTS, 0), "ssssss", order=True)
    assert (run["verdict"], run["oversold"]) == ("oversold", 2)


def test_number_given_to_two_guests_is_no_oversell() -> None:
    """There are as many orders as answers, so both buyers have an order."""
    target = ShownTarget([Order(f"no-{n}", cast(Any, None)) for n in (1, 2, 3, 4)], 0)
    run = rush_with_numbers(target, ["no-1", "no-2", "no-3", "no-3"])
    assert (run["verdict"], run["oversold"]) == ("unknown", 0)
    assert run["violations"] == ["lost_ack", "ghost_order"]


def test_orders_of_guests_without_any_known_number_are_refused() -> None:
    books = [Order("A", cast(Any, None))]
    with pytest.raises(
        TargetError, match=r"names an order 'no-1', and orders\(\) names an order 'A'"
    ):
        rush_and_judge(ShownTarget(books, 3), "s", order=True)
    with pytest.raises(TargetError, match=r"names no buyer \(of order 'A', say\): return buyer"):
        rush_and_judge(ShownTarget(books, 3), "s")


def test_only_orders_that_answers_name_are_known_by_their_numbers() -> None:
    books = [*list_orders(0, 1, 2), Order("no-9", "walk-in")]
    run = rush_and_judge(ShownTarget(books, 0), "sssooo", order=True)
    assert "no buyer" not in str(run["judged"])
    assert run["why"] == "order no-9 is walk-in's, who is no buyer of the rush"


def test_each_rush_counts_its_own_orders_without_names() -> None:
    runs = [{"judged": ["the orders", *extra]} for extra in ([], ["1 order"], [], ["1 order"])]
    assert merge_scopes(runs, "judged") == ["the orders", "rushes 2, 4: 1 order"]


def test_equal_serials_are_told_apart_by_their_buyers() -> None:
    """EU-3 and US-3 are two numbers, and the buyer of US-3 has no order."""
    books = [Order(number, f"buyer-{number - 1}") for number in (1, 2, 3)]
    run = rush_with_numbers(ShownTarget(books, 0), ["EU-1", "EU-2", "EU-3", "US-3"])
    assert run["findings"][1] == "rush/buyer-3 was answered with order US-3; there is none"


def test_one_serial_of_two_series_is_known_by_its_buyer() -> None:
    """Both buyers are answered with order 7: one has EU-7, the other US-7."""
    books = orders_of(["EU-7", "US-7", "EU-8", "US-8"])
    run = rush_with_numbers(ShownTarget(books, 0), ["7", "7", "8", "8"])
    assert (run["verdict"], run["findings"]) == ("exact", [])


# --- a list at one time, and a number at another --------------------------------------------------


def test_number_of_orders_is_counted_from_an_earlier_list() -> None:
    run = rush_and_judge(ShownTarget(STOCK + 2, 0, showed=EARLIER), "ssssoo")
    assert (run["verdict"], run["orders"]) == ("exact", STOCK)


def test_list_of_orders_after_their_number_is_refused() -> None:
    """Which orders are from before the rush is unknown."""
    target = ShownTarget([*EARLIER, *list_orders(0, 1, 2, 3)], 0, showed=2)
    with pytest.raises(TargetError) as refused:
        rush_and_judge(target, "ssssoo")
    assert "orders() returned the number 2 when the sale was opened, and a list now" in (
        str(refused.value)
    )


def test_list_of_orders_after_none_is_accepted() -> None:
    run = rush_and_judge(ShownTarget(list_orders(0, 1, 2, 3), 0, showed=0), "ssssoo")
    assert (run["verdict"], run["orders"]) == ("exact", STOCK)


# --- orders of earlier customers ------------------------------------------------------------------

EARLIER = [Order("old-1", "ann"), Order("old-2", "bob")]


@pytest.mark.parametrize(
    ("after", "says"),
    [
        ([EARLIER[0]], "order old-2 was there before this rush, and is gone: where orders()"),
        ([], "order old-1 was there before this rush, and is gone (1 more): where orders()"),
        (
            [EARLIER[0], Order("old-2", "ann")],
            "order old-2 named bob before this rush, and names ann now",
        ),
    ],
)
def test_changed_order_of_an_earlier_customer_is_found(after: list[Order], says: str) -> None:
    new = list_orders(0, 1, 2, 3) if len(after) < 2 else list_orders(0, 1, 2)
    run = rush_and_judge(
        ShownTarget([*after, *new], 0, showed=EARLIER), "ssssoo" if len(after) < 2 else "sssooo"
    )
    assert (run["verdict"], run["violations"][-1]) == ("unknown", "changed_before")
    assert says in run["findings"][-1]


@pytest.mark.parametrize("earlier", [[], EARLIER])
def test_earlier_orders_that_stay_or_were_never_listed_are_no_finding(earlier: list[Order]) -> None:
    target = ShownTarget([*earlier, *list_orders(0, 1, 2, 3)], 0, showed=earlier)
    assert rush_and_judge(target, "ssssoo")["violations"] == []


# --- what comes late ------------------------------------------------------------------------------


class Late(ShownTarget):
    """A shop whose stock falls only at the fourth read."""

    settles_s = 5.0
    looks = 0

    def stock(self) -> int:
        self.looks += 1
        return STOCK if self.looks < 4 else 0


def test_stock_that_falls_late_is_waited_for() -> None:
    run = rush_and_judge(Late(list_orders(0, 1, 2, 3), 0), "ssssoo")
    assert (run["verdict"], run["findings"]) == ("exact", [])


def test_stock_that_never_falls_names_settles_s_and_dispatch() -> None:
    target = ShownTarget(list_orders(0, 1, 2, 3), STOCK)
    target.settles_s = 0.2
    run = rush_and_judge(target, "ssssoo")
    assert (run["verdict"], run["violations"]) == ("unknown", ["lost_update"])
    assert run["findings"][-1] == (
        "stock() said 4 0.2 s after the answers (settles_s): where it falls later, set settles_s "
        "higher, and where it falls at dispatch, return the units that the shop would still sell"
    )


def test_oversold_sale_is_not_waited_for() -> None:
    target = ShownTarget(list_orders(0, 1, 2, 3, 4, 5), 3)
    target.settles_s = 3600.0
    assert rush_and_judge(target, "ssssss")["verdict"] == "oversold"


class Cached(ShownTarget):
    """A shop whose stock is stale at the first two reads of a new sale."""

    settles_s = 5.0

    def __init__(self) -> None:
        super().__init__(list_orders(0, 1, 2, 3), 0)
        self.lefts = [0, 0, STOCK, STOCK, 0]


def test_cached_stock_is_waited_for_when_a_sale_opens() -> None:
    assert rush_and_judge(Cached(), "ssssoo")["verdict"] == "exact"


def test_stock_of_none_after_a_rush_is_refused() -> None:
    target = ShownTarget(list_orders(0, 1, 2, 3), 0)
    target.lefts = cast(Any, [STOCK, None])
    with pytest.raises(TargetError, match=r"return 0 where no unit is left: it returned 4 when"):
        rush_and_judge(target, "ssssoo")


class SlowQueue(ShownTarget):
    """A shop whose third order appears at the second read after the rush, and the fourth never."""

    settles_s = 2 * POLL_INTERVAL_SECONDS
    looks = 0

    def orders(self) -> Orders:
        self.looks += 1
        return list_orders(*range((0, 0, 2, 3)[min(3, self.looks)]))


def test_orders_that_still_arrive_are_not_undersold() -> None:
    run = rush_and_judge(SlowQueue([], 0), "ssssoo")
    assert run["verdict"] == "unknown"
    assert run["why"].startswith("4 answers said sold, and 3 orders were there 0.2 s after")


def test_stock_that_fell_too_far_names_no_queue() -> None:
    run = rush_and_judge(ShownTarget(list_orders(0, 1, 2), 0), "sssooo")
    assert run["findings"][-1] == (
        "stock() said 0 0 s after the answers (settles_s): it fell by 4, and orders() shows 3"
    )


def test_stock_that_moves_after_the_rush_is_seen() -> None:
    target = ShownTarget(list_orders(0, 1, 2, 3), 0)
    rush = make_rush(target, ["no-1", "no-2", "no-3", "no-4", "", ""])
    assert rush.compute_run()["verdict"] == "exact"
    assert rush.reread_orders() == {"orders": 4, "changes": []}
    target.lefts = [2]
    assert rush.reread_orders() == {"orders": 4, "changes": ["stock() said 0, and says 2 now"]}


def test_orders_that_never_come_name_settles_s() -> None:
    run = rush_and_judge(ShownTarget([], STOCK), "ssssoo")
    assert run["verdict"] == "unknown"
    assert (
        "4 answers said sold, and 0 orders were there 0 s after the answers"
        in (run["findings"][-1])
    )
    assert "set settles_s higher" in run["findings"][-1]
    assert "let it follow the next pages" in run["findings"][-1]


@pytest.mark.parametrize("waiting", [None, -1, "0", 2.5, True])
def test_unsettled_without_a_count_is_refused(waiting: Any) -> None:
    target = ShownTarget(list_orders(0, 1, 2, 3), 0)
    target.unsettled = lambda: waiting  # type: ignore[method-assign]
    with pytest.raises(TargetError, match=r"unsettled\(\) returned .*; return how many promised"):
        rush_and_judge(target, "ssssoo")


def test_messages_to_other_shops_name_no_command_of_this_project() -> None:
    target = ShownTarget(list_orders(0, 1, 2, 3), 0)
    target.unsettled = lambda: 3  # type: ignore[method-assign]
    text = str(rush_and_judge(target, "ssssoo")) + str(
        rush_and_judge(ShownTarget(list_orders(0, 1, 2), 1), "sss-")
    )
    for word in ("manage.py", "SHOP_", "BUY_RATE", "nodes' log"):
        assert word not in text


def test_orders_without_a_number_are_refused() -> None:
    shows: Orders = [Order(cast(Any, None), "buyer-0")]
    with pytest.raises(TargetError, match="return each order with its number"):
        rush_and_judge(ShownTarget(shows, 0), "s")
