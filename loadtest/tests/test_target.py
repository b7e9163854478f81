"""The judge's verdict on a third-party shop.

A target is the class that describes such a shop to the load test (loadtest/target/target.py). In
these tests no shop runs: each test sets the answers to the buyers, and the orders and the stock
that the target reports. A run's field `violations` has names of these rules of the judge:

    lost_update     the stock did not fall by the number of ordered units
    lost_ack        a buyer was answered `sold`, and its order is missing
    false_sold_out  a buyer was answered `sold_out` while units were left, or has an order
    ghost_order     an order belongs to no buyer of the rush
    double_order    a buyer has two orders
    unsettled       the shop has promised orders and not written them yet
"""

import time
from collections.abc import Sequence
from typing import Any, TypeVar, cast
from uuid import UUID

import pytest

from loadtest.judge.intervals import Request
from loadtest.judge.run import Run
from loadtest.report.tables import explain_run
from loadtest.rush.plan import RushPlan
from loadtest.rush.rush import Rush
from loadtest.target import Order, Target, TargetError, error, sold, sold_out
from loadtest.target.answer import UNKNOWN_OUTCOME
from loadtest.target.target import Orders

STOCK = 4
T = TypeVar("T")

#: The answers to the buyers of a rush, one letter for each buyer. For example, 2 * SOLD + SOLD_OUT
#: are the answers to three buyers.
SOLD = "s"
SOLD_OUT = "o"
ERROR = "e"
NO_REPLY = "-"


class StubTarget(Target):
    """A target without a shop: the test sets what orders() and stock() return.

    orders_after    the orders after the rush
    stock_left      the stock after the rush; None if stock() always returns None. When the sale is
                    opened, the stock is STOCK
    orders_before   the orders when the sale is opened
    orders_by_call  what orders() returns at its first call, its second call, and so on; all further
                    calls return the last entry
    stocks_by_call  what stock() returns at each call, in the same way
    """

    name = "stub"
    settles_s = 0.0

    def __init__(
        self, orders_after: Orders, stock_left: int | None, *, orders_before: Orders = ()
    ) -> None:
        super().__init__("http://127.0.0.1:9/")
        self.orders_by_call: list[Orders] = [orders_before, orders_after]
        self.stocks_by_call = [None if stock_left is None else STOCK, stock_left]

    def open(self, stock: int) -> None:
        assert stock == STOCK

    def orders(self) -> Orders:
        return _take_next_entry(self.orders_by_call)

    def stock(self) -> int | None:
        return _take_next_entry(self.stocks_by_call)


def _take_next_entry(entries_by_call: list[T]) -> T:
    """Return the first entry. Remove it, unless it is the only one left."""
    return entries_by_call.pop(0) if len(entries_by_call) > 1 else entries_by_call[0]


def rush_and_judge(
    target: Target, answers: str, *, numbered_answers: bool = False, number_format: str = "no-{}"
) -> dict[str, Any]:
    """Return the run (the entry in summary.json) of a judged rush for STOCK units.

    answers           a letter for each buyer, from buyer 0 on: SOLD, SOLD_OUT, ERROR or NO_REPLY
    numbered_answers  whether each answer `sold` has the number of the order: n + 1 for buyer n
    number_format     how the answers write this number
    """
    numbers: list[str | None] = [None] * len(answers)
    if numbered_answers:
        numbers = [number_format.format(number) for number in range(1, len(answers) + 1)]
    return _make_answered_rush(target, answers, numbers).judge()


def judge_numbered_rush(target: Target, numbers: Sequence[str]) -> dict[str, Any]:
    """Return the run of a judged rush in which each answer `sold` has an order number.

    numbers  the number in the answer to buyer 0, to buyer 1, and so on. Two further buyers are
             answered `sold_out`.
    """
    return make_numbered_rush(target, [*numbers, "", ""]).judge()


def make_numbered_rush(target: Target, numbers: Sequence[str]) -> Rush:
    """Return a rush that is not judged yet, in which each answer `sold` has an order number.

    numbers  the number in the answer to buyer 0, to buyer 1, and so on; "" for a buyer who was
             answered `sold_out`
    """
    answers = "".join(SOLD if number else SOLD_OUT for number in numbers)
    return _make_answered_rush(target, answers, numbers)


def _make_answered_rush(target: Target, answers: str, numbers: Sequence[str | None]) -> Rush:
    """Return a rush with these answers that is not judged yet.

    answers  a letter for each buyer, as in rush_and_judge()
    numbers  for each buyer the order number in an answer `sold`, or None if the answer has none
    """
    plan = RushPlan(hosts=[target.host], buyers=len(answers), stock=STOCK)
    rush = Rush(plan, target, id="rush")
    rush.sale_counter.open(STOCK)
    for buyer_number, letter in enumerate(answers):
        answers_by_letter = {
            SOLD: sold(numbers[buyer_number]),
            SOLD_OUT: sold_out(),
            ERROR: error("no such page"),
            NO_REPLY: UNKNOWN_OUTCOME,
        }
        answer = answers_by_letter[letter]
        request = Request(f"rush/buyer-{buyer_number}", time.monotonic_ns())
        if letter != NO_REPLY:
            answer.record_in(request)
        rush.requests.append(request)
    rush.arrived = len(answers)
    return rush


def make_buyer_orders(*buyers: int) -> list[Order]:
    """Return an order for each of these buyers. The order of buyer n has the number no-(n + 1)."""
    return [Order(f"no-{buyer + 1}", f"buyer-{buyer}") for buyer in buyers]


#: Orders from before the rush.
EARLIER_ORDERS = [Order("old-1", "buyer-0"), Order("old-2", "customer-9")]
#: Orders that name their buyers by ids of the shop, which the load test does not know.
ORDERS_WITH_SHOP_IDS = [Order(f"no-{number + 1}", f"700{number}") for number in range(4)]
ORDERS_WITH_UUIDS = [
    Order(cast(Any, UUID(int=number)), f"buyer-{number - 1}") for number in (1, 2, 3, 4)
]
ORDERS_WITH_INTEGERS = [Order(number, f"buyer-{number - 1}") for number in (1, 2, 3, 4)]
#: The last two orders belong to buyers 4 and 5, who get no unit: buyers 0 to 3 are answered `sold`.
ORDERS_OF_WRONG_BUYERS = [
    *make_buyer_orders(0, 1),
    Order("no-3", "buyer-4"),
    Order("no-4", "buyer-5"),
]
#: The violations if four buyers are answered `sold`, no unit is left, and one order is missing:
#: the stock fell by one unit more than there are orders (lost_update), one buyer has no order
#: (lost_ack), and two buyers were answered `sold_out`, although only three orders exist
#: (false_sold_out).
MISSING_ORDER_VIOLATIONS = ("lost_update", "lost_ack", "false_sold_out")
#: The option of rush_and_judge() with which each answer `sold` has the number of the order.
WITH_NUMBERS: dict[str, Any] = {"numbered_answers": True}


def make_case(
    name: str,
    target: StubTarget,
    answers: str,
    *,
    verdict: str,
    violations: Sequence[str] = (),
    oversold: int = 0,
    **options: Any,
) -> Any:
    """Return a case of test_shop_is_judged_by_its_orders_and_its_answers().

    answers     the answers to the buyers, as in rush_and_judge()
    verdict     the expected verdict
    violations  the expected violations
    oversold    the expected number of units that were sold beyond the stock
    options     options of rush_and_judge()
    """
    return pytest.param(target, answers, options, (verdict, oversold, list(violations)), id=name)


@pytest.mark.parametrize(
    ("target", "answers", "options", "expected"),
    [
        make_case(
            "all units are sold",
            StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            verdict="exact",
        ),
        make_case(
            "more orders than units",
            StubTarget(make_buyer_orders(0, 1, 2, 3, 4, 5), stock_left=3),
            6 * SOLD,
            verdict="oversold",
            violations=["lost_update"],
            oversold=2,
        ),
        make_case(
            "a list with earlier orders",
            StubTarget(
                [*EARLIER_ORDERS, *make_buyer_orders(0, 1, 2, 3)],
                stock_left=0,
                orders_before=EARLIER_ORDERS,
            ),
            4 * SOLD + 2 * SOLD_OUT,
            verdict="exact",
        ),
        make_case(
            "a total with earlier orders",
            StubTarget(11, stock_left=0, orders_before=7),
            4 * SOLD + 2 * SOLD_OUT,
            verdict="exact",
        ),
        # Four orders for four units look right, but six buyers were answered with an order number.
        make_case(
            "answers with numbers of orders that are not listed",
            StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0),
            6 * SOLD,
            verdict="oversold",
            violations=["lost_ack"],
            oversold=2,
            **WITH_NUMBERS,
        ),
        # Either the shop answered wrongly, or the target's read() returned `sold` for a refusal.
        # The judge cannot know which, so the verdict is `unknown`.
        make_case(
            "more answers sold than orders listed",
            StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0),
            6 * SOLD,
            verdict="unknown",
            violations=["lost_ack"],
        ),
        make_case(
            "more answers sold than orders",
            StubTarget(4, stock_left=0),
            6 * SOLD,
            verdict="unknown",
            violations=["lost_ack"],
        ),
        make_case(
            "orders are matched by the numbers in the answers",
            StubTarget(ORDERS_WITH_SHOP_IDS, stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            verdict="exact",
            **WITH_NUMBERS,
        ),
        make_case(
            "an order whose number is in no answer",
            StubTarget([*ORDERS_WITH_SHOP_IDS, Order("no-9", "7009")], stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            verdict="oversold",
            violations=["lost_update", "ghost_order"],
            oversold=1,
            **WITH_NUMBERS,
        ),
        make_case(
            "an integer is text in the answer",
            StubTarget(ORDERS_WITH_INTEGERS, stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            verdict="exact",
            number_format="{}",
            **WITH_NUMBERS,
        ),
        make_case(
            "a UUID is text in the answer",
            StubTarget(ORDERS_WITH_UUIDS, stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            verdict="exact",
            number_format=str(UUID(int=0))[:-1] + "{}",
            **WITH_NUMBERS,
        ),
        make_case(
            "orders of the wrong buyers",
            StubTarget(ORDERS_OF_WRONG_BUYERS, stock_left=0),
            4 * SOLD + ERROR + SOLD_OUT,
            verdict="unknown",
            violations=["lost_ack", "false_sold_out"],
        ),
        make_case(
            "orders of the wrong buyers, and answers with numbers",
            StubTarget(ORDERS_OF_WRONG_BUYERS, stock_left=0),
            4 * SOLD + ERROR + SOLD_OUT,
            verdict="unknown",
            violations=["lost_ack", "false_sold_out"],
            **WITH_NUMBERS,
        ),
        make_case(
            "an order is missing in the list",
            StubTarget(make_buyer_orders(0, 1, 2), stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            verdict="undersold",
            violations=MISSING_ORDER_VIOLATIONS,
        ),
        make_case(
            "an order is missing in the total",
            StubTarget(3, stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            verdict="undersold",
            violations=MISSING_ORDER_VIOLATIONS,
        ),
        # There are three orders, but the stock fell by four units.
        make_case(
            "a unit has neither an order nor an answer",
            StubTarget(make_buyer_orders(0, 1, 2), stock_left=0),
            3 * SOLD + 3 * SOLD_OUT,
            verdict="undersold",
            violations=["lost_update", "false_sold_out"],
        ),
        make_case(
            "a buyer with an order is answered sold out",
            StubTarget(make_buyer_orders(0, 1, 2, 5), stock_left=0),
            3 * SOLD + 3 * SOLD_OUT,
            verdict="unknown",
            violations=["false_sold_out"],
        ),
        make_case(
            "more orders than answers sold",
            StubTarget(4, stock_left=0),
            3 * SOLD + 3 * SOLD_OUT,
            verdict="unknown",
            violations=["ghost_order"],
        ),
        make_case(
            "an order has another number than the answer",
            StubTarget([Order("no-9", "buyer-0"), *make_buyer_orders(1, 2, 3)], stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            verdict="unknown",
            violations=["lost_ack"],
            **WITH_NUMBERS,
        ),
        make_case(
            "two orders of one buyer",
            StubTarget([*make_buyer_orders(0, 1, 2), Order("no-9", "buyer-0")], stock_left=0),
            3 * SOLD + 3 * SOLD_OUT,
            verdict="unknown",
            violations=["double_order"],
        ),
    ],
)
def test_shop_is_judged_by_its_orders_and_its_answers(
    target: StubTarget, answers: str, options: dict[str, Any], expected: tuple[str, int, list[str]]
) -> None:
    """Each case is a rush of six buyers for four units.

    make_case() describes the arguments. The docstring of this file explains the violations.
    """
    run = rush_and_judge(target, answers, **options)
    assert (run["verdict"], run["oversold"], run["violations"]) == expected


def test_run_has_the_descriptions_of_all_findings() -> None:
    """`why`, the reason for the verdict, has the first finding and the number of further ones.

    In the second rush buyers 4 and 5 were answered sold and have no order.
    """
    run = rush_and_judge(
        StubTarget(make_buyer_orders(0, 1, 2), stock_left=0), 4 * SOLD + 2 * SOLD_OUT
    )
    lost_ack = "rush/buyer-3 was answered sold, without a number; it has no order"
    assert run["findings"][1] == lost_ack
    assert f"stub: {lost_ack}" in explain_run(cast(Run, run))
    why = rush_and_judge(StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0), 6 * SOLD)["why"]
    assert why == "rush/buyer-4 was answered sold, without a number; it has no order (1 more)"


class QueuedTarget(StubTarget):
    """A target with one order more at each call of orders(), as if a queue wrote the orders."""

    settles_s = 5.0
    written_count = 0

    def orders(self) -> Orders:
        """Return the orders that the queue has written, and let it write one more."""
        orders = make_buyer_orders(*range(self.written_count))
        self.written_count = min(STOCK, self.written_count + 1)
        return orders


def test_judge_waits_for_orders_that_a_queue_writes() -> None:
    """QueuedTarget lists one order more at each read, as if a queue wrote the orders.

    So the judge has to read the orders several times, until it finds all four.
    """
    run = rush_and_judge(QueuedTarget([], stock_left=0), 4 * SOLD + 2 * SOLD_OUT)
    assert run["verdict"] == "exact"


def test_wait_for_a_queue_ends_after_settles_s() -> None:
    """The shop reports at each call that it has accepted three orders and not written them yet.

    After `settles_s` seconds the rush is judged all the same.
    """
    target = StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0)
    target.settles_s = 0.2
    target.unsettled = lambda: 3  # type: ignore[method-assign]
    run = rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)
    assert (run["verdict"], run["violations"]) == ("unknown", ["unsettled"])


@pytest.mark.parametrize("orders", [make_buyer_orders(0, 1, 2, 3), 4])
def test_buyer_without_a_clear_answer_may_have_an_order(orders: Any) -> None:
    """Buyer 3 got no reply, or an error, so its order is no violation.

    But the verdict is `unknown`, because a buyer has no final answer.
    """
    for letter, outcome in ((NO_REPLY, "unknown"), (ERROR, "error")):
        answers = 3 * SOLD + letter + 2 * SOLD_OUT
        run = rush_and_judge(StubTarget(orders, stock_left=0), answers)
        assert (run["verdict"], run["violations"], run["orders"]) == ("unknown", [], 4)
        assert run["outcomes"][outcome] == 1
    assert run["why"] == "1 buyer got no final answer (1 error); the shop's error was: no such page"


@pytest.mark.parametrize("opening_stock", [3, 40])
def test_sale_with_another_stock_than_requested_is_refused(opening_stock: int) -> None:
    """The load test opens a sale of four units, and the shop then reports a stock of 3 or 40."""
    target = StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0)
    target.stocks_by_call = [opening_stock, 0]
    with pytest.raises(TargetError, match=rf"open\(4\), stock\(\) returned {opening_stock}:"):
        rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)


def test_run_lists_what_was_judged_and_what_was_not() -> None:
    """The run lists the facts on which the verdict is based, and those that it leaves out.

    The first target returns only the number of orders, and no stock. So only the number of orders
    and the number of answers `sold` are judged. The second target returns a list of orders and the
    stock, and its buyers may repeat a request. So each answer, the stock and the repeated requests
    are judged, too.
    """
    run = rush_and_judge(StubTarget(4, stock_left=None), 4 * SOLD + 2 * SOLD_OUT)
    assert (run["verdict"], run["stock_left"], run["lost_updates"]) == ("exact", None, None)
    assert len(run["judged"]) == 2
    buyers, stock, keys = run["not_judged"]
    assert "orders() returns a number" in buyers
    assert "there is no stock()" in stock
    assert "no idempotency key" in keys
    target = StubTarget(make_buyer_orders(0, 1, 2, 3), stock_left=0)
    target.repeatable = True
    run = rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)
    assert (len(run["judged"]), run["not_judged"]) == (4, [])
