"""The judge's verdict on a third-party shop.

The target here has no shop: the test sets what it answers and what it shows.
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
from loadtest.target.answer import NO_ANSWER
from loadtest.target.target import Orders

STOCK = 4
T = TypeVar("T")

#: The answers to the buyers of a rush, one letter for each: 2 * SOLD + SOLD_OUT is for three.
SOLD = "s"
SOLD_OUT = "o"
ERROR = "e"
NO_REPLY = "-"


class ShownTarget(Target):
    """A target that shows the orders and the stock that a test sets, without any shop.

    stock_left     the stock after the rush; before it all units are left; None: no stock is shown
    orders_before  the orders when the sale is opened
    orders_shown   the return values of orders(), call by call; further calls return the last one
    stocks_shown   the return values of stock(), in the same way
    """

    name = "shown"
    settles_s = 0.0

    def __init__(
        self, orders_after: Orders, stock_left: int | None, *, orders_before: Orders = ()
    ) -> None:
        super().__init__("http://127.0.0.1:9/")
        self.orders_shown: list[Orders] = [orders_before, orders_after]
        self.stocks_shown = [None if stock_left is None else STOCK, stock_left]

    def open(self, stock: int) -> None:
        assert stock == STOCK

    def orders(self) -> Orders:
        return _take_next(self.orders_shown)

    def stock(self) -> int | None:
        return _take_next(self.stocks_shown)


def _take_next(answers: list[T]) -> T:
    """Remove and return the first answer. The last one is not removed."""
    return answers.pop(0) if len(answers) > 1 else answers[0]


def rush_and_judge(
    target: Target, answers: str, *, numbered_answers: bool = False, spelling: str = "no-{}"
) -> dict[str, Any]:
    """Return the result of a rush for STOCK units in which buyer n got the nth of these answers.

    Buyers are counted from 0.

    answers           a letter for each buyer: SOLD, SOLD_OUT, ERROR or NO_REPLY
    numbered_answers  whether an answer `sold` has the number of its order: n + 1 for buyer n
    spelling          the format in which the answers write this number
    """
    numbers: list[str | None] = [None] * len(answers)
    if numbered_answers:
        numbers = [spelling.format(number) for number in range(1, len(answers) + 1)]
    return _make_answered_rush(target, answers, numbers).compute_run()


def judge_numbers(target: Target, numbers: Sequence[str]) -> dict[str, Any]:
    """Return the result of a rush in which buyer n was answered `sold` with the nth number.

    Two more buyers are answered `sold out`.
    """
    return make_rush(target, [*numbers, "", ""]).compute_run()


def make_rush(target: Target, numbers: Sequence[str]) -> Rush:
    """Return a rush in which buyer n was answered `sold` with the nth of these order numbers.

    An empty number stands for the answer `sold out`.
    """
    answers = "".join(SOLD if number else SOLD_OUT for number in numbers)
    return _make_answered_rush(target, answers, numbers)


def _make_answered_rush(target: Target, answers: str, numbers: Sequence[str | None]) -> Rush:
    """Return a rush that has these answers and is not judged yet.

    answers  a letter for each buyer, as in rush_and_judge()
    numbers  for each buyer the order number in an answer `sold`, or None for an answer without one
    """
    plan = RushPlan(hosts=[target.host], buyers=len(answers), stock=STOCK)
    rush = Rush(plan, target, id="rush")
    rush.sale_counter.open(STOCK)
    for number, letter in enumerate(answers):
        answers_by_letter = {
            SOLD: sold(numbers[number]),
            SOLD_OUT: sold_out(),
            ERROR: error("no such page"),
            NO_REPLY: NO_ANSWER,
        }
        answer = answers_by_letter[letter]
        request = Request(f"rush/buyer-{number}", time.monotonic_ns())
        if letter != NO_REPLY:
            answer.record(request)
        rush.requests.append(request)
    rush.arrived = len(answers)
    return rush


def list_orders(*buyers: int) -> list[Order]:
    """Return one order for each of these buyers. The order of buyer n has the number no-(n + 1)."""
    return [Order(f"no-{number + 1}", f"buyer-{number}") for number in buyers]


EARLIER_ORDERS = [Order("old-1", "buyer-0"), Order("old-2", "customer-9")]
#: Orders with the shop's own ids of the buyers.
ORDERS_WITH_SHOP_IDS = [Order(f"no-{number + 1}", f"700{number}") for number in range(4)]
ORDERS_WITH_UUIDS = [
    Order(cast(Any, UUID(int=number)), f"buyer-{number - 1}") for number in (1, 2, 3, 4)
]
ORDERS_WITH_INTEGERS = [Order(number, f"buyer-{number - 1}") for number in (1, 2, 3, 4)]
#: Orders of a sale in which buyers 2 and 3, and not 4 and 5, are answered `sold`.
ORDERS_OF_WRONG_BUYERS = [*list_orders(0, 1), Order("no-3", "buyer-4"), Order("no-4", "buyer-5")]
#: The violations of a sale of all units in which the shop does not list one order.
MISSING_ORDER_VIOLATIONS = ("lost_update", "lost_ack", "false_sold_out")
#: Options of rush_and_judge().
WITH_NUMBERS: dict[str, Any] = {"numbered_answers": True}


def case(
    name: str,
    target: ShownTarget,
    answers: str,
    verdict: str,
    *violations: str,
    oversold: int = 0,
    **options: Any,
) -> Any:
    """Return a case of the test below: the rush, and the verdict, violations and oversold units.

    options  options of rush_and_judge()
    """
    return pytest.param(target, answers, options, (verdict, oversold, list(violations)), id=name)


@pytest.mark.parametrize(
    ("target", "answers", "options", "expected"),
    [
        case(
            "all units are sold",
            ShownTarget(list_orders(0, 1, 2, 3), stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            "exact",
        ),
        case(
            "more orders than units",
            ShownTarget(list_orders(0, 1, 2, 3, 4, 5), stock_left=3),
            6 * SOLD,
            "oversold",
            "lost_update",
            oversold=2,
        ),
        case(
            "a list with earlier orders",
            ShownTarget(
                [*EARLIER_ORDERS, *list_orders(0, 1, 2, 3)],
                stock_left=0,
                orders_before=EARLIER_ORDERS,
            ),
            4 * SOLD + 2 * SOLD_OUT,
            "exact",
        ),
        case(
            "a total with earlier orders",
            ShownTarget(11, stock_left=0, orders_before=7),
            4 * SOLD + 2 * SOLD_OUT,
            "exact",
        ),
        # Four orders for four units: only the answers show that six buyers were promised a unit.
        case(
            "answers name orders that are not listed",
            ShownTarget(list_orders(0, 1, 2, 3), stock_left=0),
            6 * SOLD,
            "oversold",
            "lost_ack",
            oversold=2,
            **WITH_NUMBERS,
        ),
        # Either the shop lied, or read() took a refusal for a sale.
        case(
            "more answers sold than orders listed",
            ShownTarget(list_orders(0, 1, 2, 3), stock_left=0),
            6 * SOLD,
            "unknown",
            "lost_ack",
        ),
        case(
            "more answers sold than orders",
            ShownTarget(4, stock_left=0),
            6 * SOLD,
            "unknown",
            "lost_ack",
        ),
        case(
            "orders are known by their numbers",
            ShownTarget(ORDERS_WITH_SHOP_IDS, stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            "exact",
            **WITH_NUMBERS,
        ),
        case(
            "an order that no answer names",
            ShownTarget([*ORDERS_WITH_SHOP_IDS, Order("no-9", "7009")], stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            "oversold",
            "lost_update",
            "ghost_order",
            oversold=1,
            **WITH_NUMBERS,
        ),
        case(
            "an integer is text in the answer",
            ShownTarget(ORDERS_WITH_INTEGERS, stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            "exact",
            spelling="{}",
            **WITH_NUMBERS,
        ),
        case(
            "a UUID is text in the answer",
            ShownTarget(ORDERS_WITH_UUIDS, stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            "exact",
            spelling=str(UUID(int=0))[:-1] + "{}",
            **WITH_NUMBERS,
        ),
        case(
            "orders of the wrong buyers",
            ShownTarget(ORDERS_OF_WRONG_BUYERS, stock_left=0),
            4 * SOLD + ERROR + SOLD_OUT,
            "unknown",
            "lost_ack",
            "false_sold_out",
        ),
        case(
            "orders of the wrong buyers, whose numbers are answered",
            ShownTarget(ORDERS_OF_WRONG_BUYERS, stock_left=0),
            4 * SOLD + ERROR + SOLD_OUT,
            "unknown",
            "lost_ack",
            "false_sold_out",
            **WITH_NUMBERS,
        ),
        case(
            "an order is missing in the list",
            ShownTarget(list_orders(0, 1, 2), stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            "undersold",
            *MISSING_ORDER_VIOLATIONS,
        ),
        case(
            "an order is missing in the total",
            ShownTarget(3, stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            "undersold",
            *MISSING_ORDER_VIOLATIONS,
        ),
        # Three orders are shown, and four units are gone.
        case(
            "a unit has neither an order nor an answer",
            ShownTarget(list_orders(0, 1, 2), stock_left=0),
            3 * SOLD + 3 * SOLD_OUT,
            "undersold",
            "lost_update",
            "false_sold_out",
        ),
        case(
            "a buyer with an order is answered sold out",
            ShownTarget(list_orders(0, 1, 2, 5), stock_left=0),
            3 * SOLD + 3 * SOLD_OUT,
            "unknown",
            "false_sold_out",
        ),
        case(
            "more orders than answers sold",
            ShownTarget(4, stock_left=0),
            3 * SOLD + 3 * SOLD_OUT,
            "unknown",
            "ghost_order",
        ),
        case(
            "an order has another number than the answer",
            ShownTarget([Order("no-9", "buyer-0"), *list_orders(1, 2, 3)], stock_left=0),
            4 * SOLD + 2 * SOLD_OUT,
            "unknown",
            "lost_ack",
            **WITH_NUMBERS,
        ),
        case(
            "two orders of one buyer",
            ShownTarget([*list_orders(0, 1, 2), Order("no-9", "buyer-0")], stock_left=0),
            3 * SOLD + 3 * SOLD_OUT,
            "unknown",
            "double_order",
        ),
    ],
)
def test_shop_is_judged_by_its_orders_and_its_answers(
    target: ShownTarget, answers: str, options: dict[str, Any], expected: tuple[str, int, list[str]]
) -> None:
    """Each case is a rush of six buyers for four units. case() describes its arguments."""
    run = rush_and_judge(target, answers, **options)
    assert (run["verdict"], run["oversold"], run["violations"]) == expected


def test_sentences_of_all_findings_are_in_the_run() -> None:
    """The reason for the verdict, `why`, has the first sentence, and counts the others."""
    run = rush_and_judge(ShownTarget(list_orders(0, 1, 2), stock_left=0), 4 * SOLD + 2 * SOLD_OUT)
    lost_ack = "rush/buyer-3 was answered sold, without a number; there is none"
    assert run["findings"][1] == lost_ack
    assert f"shown: {lost_ack}" in explain_run(cast(Run, run))
    why = rush_and_judge(ShownTarget(list_orders(0, 1, 2, 3), stock_left=0), 6 * SOLD)["why"]
    assert why == "rush/buyer-4 was answered sold, without a number; there is none (1 more)"


class QueuedTarget(ShownTarget):
    """A target that shows one more order at each call, as if a queue wrote them one by one."""

    settles_s = 5.0
    written_count = 0

    def orders(self) -> Orders:
        orders = list_orders(*range(self.written_count))
        self.written_count = min(STOCK, self.written_count + 1)
        return orders


def test_orders_that_are_written_after_the_answers_are_waited_for() -> None:
    run = rush_and_judge(QueuedTarget([], stock_left=0), 4 * SOLD + 2 * SOLD_OUT)
    assert run["verdict"] == "exact"


def test_wait_for_an_endless_queue_is_bounded() -> None:
    """The shop says at each call that three promised orders are not written yet."""
    target = ShownTarget(list_orders(0, 1, 2, 3), stock_left=0)
    target.settles_s = 0.2
    target.unsettled = lambda: 3  # type: ignore[method-assign]
    run = rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)
    assert (run["verdict"], run["violations"]) == ("unknown", ["unsettled"])


@pytest.mark.parametrize("orders", [list_orders(0, 1, 2, 3), 4])
def test_lost_answer_or_error_leaves_the_buyers_order_open(orders: Any) -> None:
    """The order of a buyer who got no reply, or an error, may exist, or may not exist."""
    for letter, outcome in ((NO_REPLY, "unknown"), (ERROR, "error")):
        answers = 3 * SOLD + letter + 2 * SOLD_OUT
        run = rush_and_judge(ShownTarget(orders, stock_left=0), answers)
        assert (run["verdict"], run["violations"], run["orders"]) == ("unknown", [], 4)
        assert run["outcomes"][outcome] == 1
    assert run["why"] == "1 had no final answer (1 error); the shop says: no such page"


@pytest.mark.parametrize("opening_stock", [3, 40])
def test_sale_with_another_stock_than_requested_is_refused(opening_stock: int) -> None:
    """The test opens a sale of four units, and the shop then shows 3 or 40."""
    target = ShownTarget(list_orders(0, 1, 2, 3), stock_left=0)
    target.stocks_shown = [opening_stock, 0]
    with pytest.raises(TargetError, match=rf"open\(4\), stock\(\) returned {opening_stock}:"):
        rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)


def test_run_lists_what_was_judged_and_what_was_not() -> None:
    """The first target shows a number of orders and no stock. The second one shows everything."""
    run = rush_and_judge(ShownTarget(4, stock_left=None), 4 * SOLD + 2 * SOLD_OUT)
    assert (run["verdict"], run["stock_left"], run["lost_updates"]) == ("exact", None, None)
    assert len(run["judged"]) == 2
    buyers, stock, keys = run["not_judged"]
    assert "orders() returns a number" in buyers
    assert "there is no stock()" in stock
    assert "no idempotency key" in keys
    target = ShownTarget(list_orders(0, 1, 2, 3), stock_left=0)
    target.repeatable = True
    run = rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)
    assert (len(run["judged"]), run["not_judged"]) == (4, [])
