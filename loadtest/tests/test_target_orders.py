"""How the judge matches the orders of a third-party shop with the answers to its buyers.

Such a shop may write the number of an order in two ways, have orders from before the rush, use a
number twice, not say which buyer placed an order, or lower its stock late.

StubTarget(orders, stock_left) returns these orders and this stock after a rush for STOCK units.
Before the rush it returns `orders_before` and STOCK. The answers to buyers 0, 1, 2, ... are written
as a sum: 4 * SOLD + 2 * SOLD_OUT means that the first four were answered `sold`. test_target.py
explains the names of most violations.
"""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from loadtest.commands.target import judge_again, merge_scopes
from loadtest.target import Order, TargetError
from loadtest.target.sale_counter import POLL_INTERVAL_SECONDS
from loadtest.tests.test_target import (
    NO_REPLY,
    SOLD,
    SOLD_OUT,
    STOCK,
    StubTarget,
    judge_numbered_rush,
    make_buyer_orders,
    make_numbered_rush,
    rush_and_judge,
)

#: Orders of other customers, from before the rush.
EARLIER_ORDERS = [Order("old-1", "ann"), Order("old-2", "bob")]


def make_numbered_orders(numbers: Sequence[object]) -> list[Order]:
    """Return an order with each of these numbers: the first of buyer 0, the next of buyer 1, ..."""
    return [Order(cast(Any, number), f"buyer-{buyer}") for buyer, number in enumerate(numbers)]


def make_guest_orders(*numbers: str) -> list[Order]:
    """Return orders with these numbers and without a buyer, as of guests without an account."""
    return [Order(number, cast(Any, None)) for number in numbers]


@pytest.mark.parametrize(
    ("answer_format", "listed_numbers"),
    [
        ("00010{}", [101, 102, 103, 104]),
        ("#10{}", [101, 102, 103, 104]),
        ("KITE-00010{}", [101, 102, 103, 104]),
        ("10{}.0", [101, 102, 103, 104]),
        ("10{}", [101.0, 102.0, 103.0, 104.0]),
        ("kite-{}x", ["KITE-1X", "KITE-2X", "KITE-3X", "KITE-4X"]),
        ("K{}", ["K1        ", "K2        ", "K3        ", "K4        "]),
        (
            "00009000-0000-0000-0000-00000000000{}",
            [f"0000900000000000000000000000000{number}" for number in (1, 2, 3, 4)],
        ),
    ],
    ids=["zeros", "number sign", "reference", "float", "listed float", "capitals", "CHAR", "UUID"],
)
def test_two_formats_of_a_number_are_the_same_number(
    answer_format: str, listed_numbers: list[object]
) -> None:
    """The answers write the numbers of orders in one format, and orders() in another."""
    target = StubTarget(make_numbered_orders(listed_numbers), stock_left=0)
    run = rush_and_judge(
        target, 4 * SOLD + 2 * SOLD_OUT, numbered_answers=True, number_format=answer_format
    )
    assert (run["verdict"], run["findings"]) == ("exact", [])


@pytest.mark.parametrize("listed_numbers", [["a", "b", "c", "d"], ["A-1", "B-1", "C-1", "D-1"]])
def test_numbers_that_cannot_be_compared_are_refused(listed_numbers: list[object]) -> None:
    """No rule makes KITE-1 in an answer equal to the listed number. The message quotes both."""
    target = StubTarget(make_numbered_orders(listed_numbers), stock_left=0)
    with pytest.raises(TargetError) as refusal:
        rush_and_judge(
            target, 4 * SOLD + 2 * SOLD_OUT, numbered_answers=True, number_format="KITE-{}"
        )
    assert (
        f"an answer has the order number 'KITE-1', and orders() returned {listed_numbers[0]!r} "
        "for that buyer's only order"
    ) in str(refusal.value)


def test_finding_has_the_order_numbers_of_the_shop() -> None:
    """If orders() returns only how many orders there are, the finding counts them: 4 of 4."""
    orders = make_numbered_orders(["no-1", "no-2", "no-3", "other"])
    run = rush_and_judge(
        StubTarget(orders, stock_left=0), 4 * SOLD + 2 * SOLD_OUT, numbered_answers=True
    )
    assert run["findings"] == ["rush/buyer-3 was answered with order no-4; it has order other"]
    run = rush_and_judge(StubTarget(STOCK, stock_left=0), 3 * SOLD + 3 * SOLD_OUT)
    assert run["findings"] == ["order 4 of 4 has no buyer's key, and no answer has its number"]


# --- orders from before the rush ------------------------------------------------------------------


@pytest.mark.parametrize("number_format", ["no-{}", "#no-{}"])
@pytest.mark.parametrize(
    ("new_orders", "answers"), [(make_buyer_orders(4, 5), 6 * SOLD), ([], 4 * SOLD + 2 * SOLD_OUT)]
)
def test_answer_with_an_earlier_order_is_refused(
    new_orders: list[Order], answers: str, number_format: str
) -> None:
    """The shop answers buyers 0 to 3 with the orders that they had before the rush.

    Then the target cannot be judged, and the message advises to use new customers.
    """
    earlier_orders = make_buyer_orders(0, 1, 2, 3)
    target = StubTarget(
        [*earlier_orders, *new_orders],
        stock_left=STOCK - len(new_orders),
        orders_before=earlier_orders,
    )
    with pytest.raises(TargetError) as refusal:
        rush_and_judge(target, answers, numbered_answers=True, number_format=number_format)
    assert "buyer-0 was answered with order no-1, and buyer-0 had order no-1 before this rush" in (
        str(refusal.value)
    )
    assert "log in with buyer.key, which is new in every rush" in str(refusal.value)


def test_answer_sold_without_a_new_order_is_refused() -> None:
    """Buyers 0 and 1 are answered sold, but have only an order from before the rush.

    The answers have no order numbers.
    """
    earlier_orders = make_buyer_orders(0, 1)
    target = StubTarget(
        [*earlier_orders, *make_buyer_orders(2, 3)],
        stock_left=STOCK - 2,
        orders_before=earlier_orders,
    )
    with pytest.raises(TargetError, match="buyer-0 was answered sold, and buyer-0 had order no-1"):
        rush_and_judge(target, 4 * SOLD)


def test_returning_customer_may_have_a_second_order() -> None:
    """All six buyers have an order from before the rush, and four of them buy again."""
    earlier_orders = [Order(f"old-{number}", f"buyer-{number}") for number in range(6)]
    all_orders = [*earlier_orders, *make_buyer_orders(0, 1, 2, 3)]
    target = StubTarget(all_orders, stock_left=0, orders_before=earlier_orders)
    run = rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT, numbered_answers=True)
    assert run["verdict"] == "exact"


# --- one number for several orders ----------------------------------------------------------------


def test_order_number_shared_by_two_buyers_is_a_violation() -> None:
    """Buyers 2 and 3 both have order no-3."""
    orders = [*make_buyer_orders(0, 1, 2), Order("no-3", "buyer-3")]
    run = rush_and_judge(StubTarget(orders, stock_left=0), 4 * SOLD + 2 * SOLD_OUT)
    assert (run["verdict"], run["violations"]) == ("unknown", ["double_number"])
    assert run["why"].startswith("order no-3 belongs to rush/buyer-2 and rush/buyer-3; if ")
    assert run["why"].endswith("let orders() return the primary key")


def test_equal_numbers_of_two_buyers_are_two_orders() -> None:
    """Two orders are the same only if both the number and the buyer are equal.

    So the two orders numbered 1 of buyers 2 and 3 are new, although orders numbered 1 of buyers 0
    and 1 existed before the rush.
    """
    before = [Order(1, f"buyer-{number}") for number in range(2)]
    new = [Order(2, "buyer-0"), Order(2, "buyer-1"), Order(1, "buyer-2"), Order(1, "buyer-3")]
    run = rush_and_judge(
        StubTarget([*before, *new], stock_left=0, orders_before=before), 4 * SOLD + 2 * SOLD_OUT
    )
    assert (run["orders"], run["violations"]) == (4, ["double_number"])


def test_order_that_is_listed_twice_is_refused() -> None:
    """orders() returns the order of buyer 2 twice."""
    with pytest.raises(TargetError) as refusal:
        rush_and_judge(
            StubTarget(make_buyer_orders(0, 1, 2, 3, 2), stock_left=0), 4 * SOLD + 2 * SOLD_OUT
        )
    assert "Do two pages of the list overlap?" in str(refusal.value)
    assert "return the primary key of each as its number" in str(refusal.value)


# --- orders of guests, which have no buyer of the rush --------------------------------------------


def test_orders_of_guests_are_matched_by_their_numbers() -> None:
    """Orders no-3 and no-4 have no buyer of the rush, but their numbers are in two answers."""
    orders = [*make_buyer_orders(0, 1), *make_guest_orders("no-3"), Order("no-4", "a@example.com")]
    run = rush_and_judge(
        StubTarget(orders, stock_left=0), 4 * SOLD + 2 * SOLD_OUT, numbered_answers=True
    )
    assert (run["verdict"], run["findings"]) == ("exact", [])
    assert run["judged"][-1] == (
        "2 orders have no buyer of the rush: they were matched by the numbers in answers"
    )


def test_order_without_a_buyer_and_an_answer_is_a_ghost() -> None:
    """A ghost order belongs to no buyer of the rush. Order no-9 is one.

    Its customer is not a buyer of the rush, and its number is in no answer.
    """
    orders = [*make_buyer_orders(0, 1, 2), Order("no-9", "a@example.com")]
    run = rush_and_judge(
        StubTarget(orders, stock_left=0), 3 * SOLD + 3 * SOLD_OUT, numbered_answers=True
    )
    assert (run["verdict"], run["violations"]) == ("unknown", ["ghost_order"])


#: Four orders without a buyer. The answers of a rush have the numbers no-1, no-2, ...
GUEST_ORDERS = make_guest_orders("no-3", "no-4", "no-5", "no-6")


def test_other_numbers_in_orders_than_in_answers_are_no_oversell() -> None:
    """The answers have the numbers no-1 to no-4, and orders() has no-3 to no-6.

    Two numbers match by chance. The shop may have sold four units, and number its orders in two
    ways.
    """
    run = rush_and_judge(
        StubTarget(GUEST_ORDERS, stock_left=0), 4 * SOLD + 2 * SOLD_OUT, numbered_answers=True
    )
    assert (run["verdict"], run["violations"]) == ("unknown", ["lost_ack", "ghost_order"])
    assert (
        "an answer has the order number 'no-1', which orders() does not list, and orders() lists "
        "'no-5', which is in no answer"
    ) in run["findings"][-1]
    assert not [text for text in run["findings"] if "None" in text]


def test_more_answers_than_guests_orders_are_an_oversell() -> None:
    """Six buyers are answered sold, with six numbers. The shop has only four orders and units."""
    run = rush_and_judge(StubTarget(GUEST_ORDERS, stock_left=0), 6 * SOLD, numbered_answers=True)
    assert (run["verdict"], run["oversold"]) == ("oversold", 2)


def test_number_given_to_two_guests_is_no_oversell() -> None:
    """Two guests (buyers without an account) are answered with order no-3, and no buyer with no-4.

    One of the two guests may have order no-4, so perhaps only a number was wrong.
    """
    target = StubTarget(make_guest_orders("no-1", "no-2", "no-3", "no-4"), stock_left=0)
    run = judge_numbered_rush(target, ["no-1", "no-2", "no-3", "no-3"])
    assert (run["verdict"], run["oversold"]) == ("unknown", 0)
    assert run["violations"] == ["lost_ack", "ghost_order"]


def test_orders_that_match_no_answer_at_all_are_refused() -> None:
    """The only order, A, has no buyer. The answer has another number, or no number."""
    orders = make_guest_orders("A")
    with pytest.raises(
        TargetError,
        match=r"has the order number 'no-1', and orders\(\) returned the order number 'A'",
    ):
        rush_and_judge(StubTarget(orders, stock_left=3), SOLD, numbered_answers=True)
    with pytest.raises(TargetError, match=r"returned no buyer \(for example, of order 'A'\): "):
        rush_and_judge(StubTarget(orders, stock_left=3), SOLD)


def test_ghost_order_does_not_count_as_matched_by_its_number() -> None:
    """`judged` mentions orders that were matched by their number. There are none here.

    Order no-9 has a customer who is not a buyer of the rush, and its number is in no answer.
    """
    orders = [*make_buyer_orders(0, 1, 2), Order("no-9", "walk-in")]
    run = rush_and_judge(
        StubTarget(orders, stock_left=0), 3 * SOLD + 3 * SOLD_OUT, numbered_answers=True
    )
    assert "no buyer" not in str(run["judged"])
    assert run["why"] == "order no-9 belongs to walk-in, who is not a buyer of the rush"


def test_judged_facts_of_some_rushes_are_listed_with_their_numbers() -> None:
    """`judged` lists the facts on which the verdict is based. merge_scopes() joins several lists.

    A fact of all rushes is listed without numbers, and any other with the numbers of its rushes.
    """
    first_and_third = {"judged": ["the orders"]}
    second_and_fourth = {"judged": ["the orders", "1 order"]}
    runs = [first_and_third, second_and_fourth] * 2
    assert merge_scopes(runs, "judged") == ["the orders", "rushes 2, 4: 1 order"]


def test_number_without_its_prefix_is_matched_by_its_buyer() -> None:
    """Buyer 2 is answered with the number EU-3, and buyer 3 with US-3. The shop lists only order 3.

    Order 3 belongs to buyer 2, so it is EU-3. Order US-3 is missing.
    """
    target = StubTarget(make_numbered_orders([1, 2, 3]), stock_left=0)
    run = judge_numbered_rush(target, ["EU-1", "EU-2", "EU-3", "US-3"])
    assert run["findings"][1] == "rush/buyer-3 was answered with order US-3; no such order exists"


def test_number_with_two_prefixes_is_matched_by_its_buyer() -> None:
    """Buyers 0 and 1 are answered with order 7.

    The shop lists EU-7 as the order of buyer 0, and US-7 as that of buyer 1.
    """
    target = StubTarget(make_numbered_orders(["EU-7", "US-7", "EU-8", "US-8"]), stock_left=0)
    run = judge_numbered_rush(target, ["7", "7", "8", "8"])
    assert (run["verdict"], run["findings"]) == ("exact", [])


# --- orders() returns a list at one time, and only a number at another ----------------------------


def test_orders_may_return_a_list_first_and_then_a_number() -> None:
    """orders() returns a list of two orders before the rush, and the number 6 after it."""
    run = rush_and_judge(
        StubTarget(STOCK + 2, stock_left=0, orders_before=EARLIER_ORDERS), 4 * SOLD + 2 * SOLD_OUT
    )
    assert (run["verdict"], run["orders"]) == ("exact", STOCK)


def test_orders_must_not_return_a_number_first_and_then_a_list() -> None:
    """orders() returns the number 2 before the rush, and a list of six orders after it.

    Then nothing shows which two of the six are the old orders.
    """
    target = StubTarget(
        [*EARLIER_ORDERS, *make_buyer_orders(0, 1, 2, 3)], stock_left=0, orders_before=2
    )
    with pytest.raises(TargetError) as refusal:
        rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)
    assert "orders() returned the number 2 when the sale was opened, and a list now" in (
        str(refusal.value)
    )


def test_orders_may_return_0_first_and_then_a_list() -> None:
    """If there were no orders before the rush, all orders of the list are new."""
    run = rush_and_judge(
        StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0, orders_before=0),
        4 * SOLD + 2 * SOLD_OUT,
    )
    assert (run["verdict"], run["orders"]) == ("exact", STOCK)


# --- orders of earlier customers ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier_orders_now", "sold_count", "message"),
    [
        (
            [EARLIER_ORDERS[0]],
            4,
            "order old-2 existed before this rush, and is gone: if orders()",
        ),
        ([], 4, "order old-1 existed before this rush, and is gone (1 more): if orders()"),
        (
            [EARLIER_ORDERS[0], Order("old-2", "ann")],
            3,  # the fourth order that looks new is old-2 with its new buyer ann
            "order old-2 had the buyer bob before this rush, and has ann now",
        ),
    ],
)
def test_changed_order_of_an_earlier_customer_is_found(
    earlier_orders_now: list[Order], sold_count: int, message: str
) -> None:
    """Before the rush the shop has the orders old-1 of ann and old-2 of bob.

    earlier_orders_now  what the shop lists of these two orders after the rush
    sold_count          how many of the six buyers are answered `sold`, and have an order
    """
    orders_now = [*earlier_orders_now, *make_buyer_orders(*range(sold_count))]
    target = StubTarget(orders_now, stock_left=0, orders_before=EARLIER_ORDERS)
    run = rush_and_judge(target, sold_count * SOLD + (6 - sold_count) * SOLD_OUT)
    assert (run["verdict"], run["violations"][-1]) == ("unknown", "changed_before")
    assert message in run["findings"][-1]


@pytest.mark.parametrize("changed_order", [Order("old-2", "ann"), Order("anonymous-2", "bob")])
def test_earlier_order_that_changes_is_no_oversell(changed_order: Order) -> None:
    """A job of the shop changes the buyer or the number of an old order.

    The changed order looks like a fifth new order for four units.
    """
    earlier_orders = [EARLIER_ORDERS[0], changed_order]
    sold_orders = make_buyer_orders(0, 1, 2, 3)
    target = StubTarget([*earlier_orders, *sold_orders], stock_left=0, orders_before=EARLIER_ORDERS)
    run = rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)
    assert (run["verdict"], run["oversold"]) == ("unknown", 0)
    assert run["violations"][-1] == "changed_before"
    assert run["why"].startswith("order old-2 ")


def test_changed_earlier_order_hides_no_oversell() -> None:
    """Six orders look new, for four units. Only one of them can be the changed earlier order.

    So at least five orders are new, and the verdict is `oversold`.
    """
    changed_order = Order("old-2", "ann")
    for surplus_order in (Order("no-5", "buyer-4"), Order("no-5", "eve")):
        orders = [EARLIER_ORDERS[0], changed_order, *make_buyer_orders(0, 1, 2, 3), surplus_order]
        run = rush_and_judge(
            StubTarget(orders, stock_left=0, orders_before=EARLIER_ORDERS), 4 * SOLD + 2 * SOLD_OUT
        )
        assert (run["verdict"], run["oversold"]) == ("oversold", 2)


@pytest.mark.parametrize(
    ("late_order", "verdict", "oversold"),
    [(Order("old-2", "ann"), "unknown", 0), (Order("no-5", "buyer-0"), "oversold", 1)],
)
def test_changed_order_after_the_verdict_is_told_from_a_new_one(
    late_order: Order, verdict: str, oversold: int
) -> None:
    """After the verdict the shop no longer lists order old-2, and lists `late_order` instead.

    Order old-2 of another customer is the changed order, so it is no oversell. Order no-5 of
    buyer 0 is a fifth order of the rush.
    """
    sold_orders = make_buyer_orders(0, 1, 2, 3)
    target = StubTarget([*EARLIER_ORDERS, *sold_orders], stock_left=0, orders_before=EARLIER_ORDERS)
    rush = make_numbered_rush(target, ["no-1", "no-2", "no-3", "no-4", "", ""])
    run = rush.judge()
    assert run["verdict"] == "exact"
    target.orders_by_call = [[EARLIER_ORDERS[0], *sold_orders, late_order]]
    judge_again(run, **rush.reread_orders())
    assert (run["verdict"], run["oversold"]) == (verdict, oversold)
    assert run["violations"] == ["changed_later"]


@pytest.mark.parametrize("earlier", [[], EARLIER_ORDERS])
def test_unchanged_earlier_orders_are_no_finding(earlier: list[Order]) -> None:
    """The shop lists no earlier orders, or the same two before and after the rush."""
    target = StubTarget(
        [*earlier, *make_buyer_orders(0, 1, 2, 3)], stock_left=0, orders_before=earlier
    )
    assert rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)["violations"] == []


# --- orders and stock that change late ------------------------------------------------------------


class LateStockTarget(StubTarget):
    """A target whose first three reads of the stock return the full stock, and then 0.

    The first read takes place when the sale is opened. So two reads after the rush are outdated.
    """

    settles_s = 5.0
    read_count = 0

    def stock(self) -> int:
        self.read_count += 1
        return STOCK if self.read_count <= 3 else 0


def test_judge_waits_for_stock_that_falls_late() -> None:
    """All units are sold, and for a while after the rush the shop still reports the full stock."""
    run = rush_and_judge(
        LateStockTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0), 4 * SOLD + 2 * SOLD_OUT
    )
    assert (run["verdict"], run["findings"]) == ("exact", [])


def test_finding_on_stock_that_never_falls_has_advice() -> None:
    """Four units are sold, and stock() still returns 4 at the end of the wait, `settles_s`.

    The shop may need more time, or count units until they are dispatched.
    """
    target = StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=STOCK)
    target.settles_s = 0.2
    run = rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)
    assert (run["verdict"], run["violations"]) == ("unknown", ["lost_update"])
    assert run["findings"][-1] == (
        "0.2 s after the answers (settles_s), stock() said 4: if it falls later, set settles_s "
        "higher; if it falls at dispatch, return the units that the shop would still sell"
    )


def test_judge_does_not_wait_if_the_sale_is_oversold() -> None:
    """There are six orders for four units, although the stock has fallen by only 1.

    If the judge waited for the stock to fall further, this test would take an hour (settles_s).
    """
    target = StubTarget(make_buyer_orders(0, 1, 2, 3, 4, 5), stock_left=3)
    target.settles_s = 3600.0
    assert rush_and_judge(target, 6 * SOLD)["verdict"] == "oversold"


class CachedStockTarget(StubTarget):
    """A target that returns the stock of the last sale, 0, at the first two reads of a new sale.

    The third read has the stock of the new sale. After the rush, one more read is outdated.
    """

    settles_s = 5.0

    def __init__(self) -> None:
        super().__init__(make_buyer_orders(0, 1, 2, 3), 0)
        self.stocks_by_call = [0, 0, STOCK, STOCK, 0]


def test_rush_waits_until_the_stock_of_the_new_sale_is_shown() -> None:
    """At first the shop still returns the stock of the last sale.

    If the load test did not wait, it would refuse the target, because the sale has no units.
    """
    assert rush_and_judge(CachedStockTarget(), 4 * SOLD + 2 * SOLD_OUT)["verdict"] == "exact"


def test_stock_that_is_none_after_a_rush_is_refused() -> None:
    """stock() returns 4 when the sale opens, and None after the rush."""
    target = StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0)
    target.stocks_by_call = cast(Any, [STOCK, None])
    with pytest.raises(TargetError, match=r"return 0 where no unit is left: it returned 4 when"):
        rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)


class SlowQueueTarget(StubTarget):
    """A target that lists two orders at the first read after the rush, and three from then on.

    The fourth order of the sale is not written before the judge stops waiting.
    """

    settles_s = 2 * POLL_INTERVAL_SECONDS

    def __init__(self) -> None:
        super().__init__([], 0)
        self.orders_by_call = [[], make_buyer_orders(0, 1), make_buyer_orders(0, 1, 2)]


def test_sale_whose_orders_still_arrive_is_not_undersold() -> None:
    """The judge waits `settles_s` seconds for four orders, and finds only three.

    The third one appeared during the wait, so the fourth may appear later.
    """
    run = rush_and_judge(SlowQueueTarget(), 4 * SOLD + 2 * SOLD_OUT)
    assert run["verdict"] == "unknown"
    assert run["why"].startswith("4 answers said sold, and 3 orders were there 0.2 s after")


def test_finding_on_stock_that_fell_too_far_has_no_advice_to_wait() -> None:
    """The stock fell by four units, but only three buyers were answered sold and have orders.

    So no fourth order is expected, and a longer wait for orders (`settles_s`) would not help.
    """
    run = rush_and_judge(
        StubTarget(make_buyer_orders(0, 1, 2), stock_left=0), 3 * SOLD + 3 * SOLD_OUT
    )
    assert run["findings"][-1] == (
        "0 s after the answers (settles_s), stock() said 0: it fell by 4, and orders() shows 3"
    )


def test_stock_that_changes_after_the_verdict_is_found() -> None:
    """stock() returns 0 when the rush is judged, and 2 when it is read again later.

    There was no order before the rush, so `possible_earlier_orders` is 0.
    """
    target = StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0)
    rush = make_numbered_rush(target, ["no-1", "no-2", "no-3", "no-4", "", ""])
    assert rush.judge()["verdict"] == "exact"
    assert rush.reread_orders() == {"orders": 4, "changes": [], "possible_earlier_orders": 0}
    target.stocks_by_call = [2]
    assert rush.reread_orders()["changes"] == ["stock() was 0, and is 2 now"]


def test_finding_on_orders_that_never_come_has_advice() -> None:
    """Four buyers are answered sold, and the shop never lists an order."""
    run = rush_and_judge(StubTarget([], stock_left=STOCK), 4 * SOLD + 2 * SOLD_OUT)
    assert run["verdict"] == "unknown"
    assert (
        "4 answers said sold, and 0 orders were there 0 s after the answers"
        in (run["findings"][-1])
    )
    assert "set settles_s higher" in run["findings"][-1]
    assert "let it read the next pages, too" in run["findings"][-1]


@pytest.mark.parametrize("returned", [None, -1, "0", 2.5, True])
def test_unsettled_without_a_count_is_refused(returned: Any) -> None:
    """unsettled() has to return how many orders the shop has accepted and not written yet."""
    target = StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0)
    target.unsettled = lambda: returned  # type: ignore[method-assign]
    with pytest.raises(TargetError, match=r"unsettled\(\) returned .*; return how many promised"):
        rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)


def test_advice_to_other_shops_has_no_command_of_this_project() -> None:
    """For this project's shop the advice mentions, for example, manage.py and SHOP_MAX_WAITING.

    In the first rush accepted orders are not written. In the second rush a buyer gets no answer.
    """
    target = StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0)
    target.unsettled = lambda: 3  # type: ignore[method-assign]
    unsettled_run = rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)
    target_of_three_orders = StubTarget(make_buyer_orders(0, 1, 2), stock_left=1)
    unanswered_run = rush_and_judge(target_of_three_orders, 3 * SOLD + NO_REPLY)
    for word in ("manage.py", "SHOP_", "BUY_RATE", "nodes' log"):
        assert word not in str(unsettled_run)
        assert word not in str(unanswered_run)


def test_orders_without_a_number_are_refused() -> None:
    """orders() returns an order whose number is None."""
    no_number = cast(Any, None)
    orders = [Order(no_number, "buyer-0")]
    with pytest.raises(TargetError, match="return each order with its number"):
        rush_and_judge(StubTarget(orders, stock_left=0), SOLD)
