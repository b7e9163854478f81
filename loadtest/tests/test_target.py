"""The judge's verdict on a third-party shop.

The target here has no shop: the test sets what it answers and what it shows.
"""

import time
from collections.abc import Sequence
from typing import Any, cast
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


class ShownTarget(Target):
    """A target that shows the orders `showed` before the rush, and `shows` after it."""

    name = "shown"
    settles_s = 0.0

    def __init__(self, shows: Orders, left: int | None, *, showed: Orders = ()) -> None:
        super().__init__("http://127.0.0.1:9/")
        self.shown: list[Orders] = [showed, shows]
        self.lefts = [None if left is None else STOCK, left]

    def open(self, stock: int) -> None:
        assert stock == STOCK

    def orders(self) -> Orders:
        return self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]

    def stock(self) -> int | None:
        return self.lefts.pop(0) if len(self.lefts) > 1 else self.lefts[0]


def rush_and_judge(
    target: Target, answers: str, *, order: bool = False, spelling: str = "no-{}"
) -> dict[str, Any]:
    """Return the run of a rush in which buyer n got the nth answer.

    answers   a letter for each buyer: s sold, o sold out, e error, - no answer
    order     whether an answer `sold` names the buyer's order, whose number is n plus 1
    spelling  the format of that number
    """
    order_numbers = [
        spelling.format(number + 1) if order else None for number in range(len(answers))
    ]
    return _rush(target, answers, order_numbers).compute_run()


def rush_with_numbers(target: Target, numbers: Sequence[str]) -> dict[str, Any]:
    """Return the run of a rush in which buyer n got the nth number, and two more `sold out`."""
    return make_rush(target, [*numbers, "", ""]).compute_run()


def make_rush(target: Target, numbers: Sequence[str]) -> Rush:
    """Return a rush in which buyer n got the nth order number, or `sold out` if it is empty."""
    return _rush(target, "".join("s" if number else "o" for number in numbers), numbers)


def _rush(target: Target, answers: str, numbers: Sequence[str | None]) -> Rush:
    """Return a rush with these answers that is not judged yet."""
    plan = RushPlan(hosts=[target.host], buyers=len(answers), stock=STOCK)
    rush = Rush(plan, target, id="rush")
    rush.sale_counter.open(STOCK)
    for number, letter in enumerate(answers):
        answer = sold(numbers[number]) if letter == "s" else OTHER.get(letter, NO_ANSWER)
        request = Request(f"rush/buyer-{number}", time.monotonic_ns())
        if letter != "-":
            answer.record(request)
        rush.requests.append(request)
    rush.arrived = len(answers)
    return rush


OTHER = {"o": sold_out(), "e": error("no such page")}


def list_orders(*buyers: int) -> list[Order]:
    """Return an order of each of these buyers; the order of buyer n is no-(n + 1)."""
    return [Order(f"no-{number + 1}", f"buyer-{number}") for number in buyers]


BEFORE = [Order("old-1", "buyer-0"), Order("old-2", "somebody")]
#: The shop's own ids of the buyers.
NUMBERED = [Order(f"no-{number + 1}", f"700{number}") for number in range(4)]
BY_UUID = [Order(cast(Any, UUID(int=number)), f"buyer-{number - 1}") for number in (1, 2, 3, 4)]
AS_TEXT = [Order(number, f"buyer-{number - 1}") for number in (1, 2, 3, 4)]
#: Two of the orders belong to another buyer.
SWAPPED = [*list_orders(0, 1), Order("no-3", "buyer-4"), Order("no-4", "buyer-5")]
LOST = ("lost_update", "lost_ack", "false_sold_out")
NAMED: dict[str, Any] = {"order": True}


def case(
    name: str,
    target: ShownTarget,
    answers: str,
    verdict: str,
    *violations: str,
    oversold: int = 0,
    **options: Any,
) -> Any:
    return pytest.param(target, answers, options, (verdict, oversold, list(violations)), id=name)


@pytest.mark.parametrize(
    ("target", "answers", "options", "found"),
    [
        case("it sells its stock", ShownTarget(list_orders(0, 1, 2, 3), 0), "ssssoo", "exact"),
        case(
            "more orders than units",
            ShownTarget(list_orders(0, 1, 2, 3, 4, 5), 3),
            "ssssss",
            "oversold",
            "lost_update",
            oversold=2,
        ),
        case(
            "orders of before",
            ShownTarget([*BEFORE, *list_orders(0, 1, 2, 3)], 0, showed=BEFORE),
            "ssssoo",
            "exact",
        ),
        case("as many of before", ShownTarget(11, 0, showed=7), "ssssoo", "exact"),
        # Four orders for four units: only the answers show that six were promised one.
        case(
            "numbers of orders that are not there",
            ShownTarget(list_orders(0, 1, 2, 3), 0),
            "ssssss",
            "oversold",
            "lost_ack",
            oversold=2,
            **NAMED,
        ),
        # The shop lied, or read() took a refusal for a sale: that is not known.
        case(
            "sold without a number",
            ShownTarget(list_orders(0, 1, 2, 3), 0),
            "ssssss",
            "unknown",
            "lost_ack",
        ),
        case("sold, in the numbers", ShownTarget(4, 0), "ssssss", "unknown", "lost_ack"),
        case("matched by their numbers", ShownTarget(NUMBERED, 0), "ssssoo", "exact", **NAMED),
        case(
            "one too many by number",
            ShownTarget([*NUMBERED, Order("no-9", "7009")], 0),
            "ssssoo",
            "oversold",
            "lost_update",
            "ghost_order",
            oversold=1,
            **NAMED,
        ),
        case(
            "a number given as text",
            ShownTarget(AS_TEXT, 0),
            "ssssoo",
            "exact",
            spelling="{}",
            **NAMED,
        ),
        case(
            "a UUID",
            ShownTarget(BY_UUID, 0),
            "ssssoo",
            "exact",
            spelling=str(UUID(int=0))[:-1] + "{}",
            **NAMED,
        ),
        case(
            "under the names of others",
            ShownTarget(SWAPPED, 0),
            "sssseo",
            "unknown",
            "lost_ack",
            "false_sold_out",
        ),
        case(
            "under other names and numbers",
            ShownTarget(SWAPPED, 0),
            "sssseo",
            "unknown",
            "lost_ack",
            "false_sold_out",
            **NAMED,
        ),
        case(
            "an order is hidden",
            ShownTarget(list_orders(0, 1, 2), 0),
            "ssssoo",
            "undersold",
            *LOST,
        ),
        case("one order fewer", ShownTarget(3, 0), "ssssoo", "undersold", *LOST),
        # Three orders are shown, and four units are gone.
        case(
            "an order of the refused is hidden",
            ShownTarget(list_orders(0, 1, 2), 0),
            "sssooo",
            "undersold",
            "lost_update",
            "false_sold_out",
        ),
        case(
            "sold out with an order",
            ShownTarget(list_orders(0, 1, 2, 5), 0),
            "sssooo",
            "unknown",
            "false_sold_out",
        ),
        case("more orders than buyers", ShownTarget(4, 0), "sssooo", "unknown", "ghost_order"),
        case(
            "another number than answered",
            ShownTarget([Order("no-9", "buyer-0"), *list_orders(1, 2, 3)], 0),
            "ssssoo",
            "unknown",
            "lost_ack",
            **NAMED,
        ),
        case(
            "two orders of one buyer",
            ShownTarget([*list_orders(0, 1, 2), Order("no-9", "buyer-0")], 0),
            "sssooo",
            "unknown",
            "double_order",
        ),
    ],
)
def test_shop_is_judged_by_its_orders_and_its_answers(
    target: ShownTarget, answers: str, options: dict[str, Any], found: tuple[str, int, list[str]]
) -> None:
    run = rush_and_judge(target, answers, **options)
    assert (run["verdict"], run["oversold"], run["violations"]) == found


def test_sentences_of_all_findings_are_in_the_run() -> None:
    run = rush_and_judge(ShownTarget(list_orders(0, 1, 2), 0), "ssssoo")
    lost = "rush/buyer-3 was answered sold, without a number; there is none"
    assert run["findings"][1] == lost
    assert f"shown: {lost}" in explain_run(cast(Run, run))
    why = rush_and_judge(ShownTarget(list_orders(0, 1, 2, 3), 0), "ssssss")["why"]
    assert why == "rush/buyer-4 was answered sold, without a number; there is none (1 more)"


class Queued(ShownTarget):
    """A target that shows one more order at each request, like a queue that is being written."""

    settles_s = 5.0
    written = -1

    def orders(self) -> Orders:
        self.written = min(STOCK, self.written + 1)
        return list_orders(*range(self.written))


def test_orders_that_are_written_after_the_answers_are_waited_for() -> None:
    assert rush_and_judge(Queued([], 0), "ssssoo")["verdict"] == "exact"


def test_wait_for_an_endless_queue_is_bounded() -> None:
    target = ShownTarget(list_orders(0, 1, 2, 3), 0)
    target.settles_s, target.lefts = 0.2, [STOCK, 0]
    target.unsettled = lambda: 3  # type: ignore[method-assign]
    run = rush_and_judge(target, "ssssoo")
    assert (run["verdict"], run["violations"]) == ("unknown", ["unsettled"])


@pytest.mark.parametrize("shows", [list_orders(0, 1, 2, 3), 4])
def test_lost_answer_or_error_leaves_the_buyers_order_open(shows: Any) -> None:
    for letter, outcome in (("-", "unknown"), ("e", "error")):
        run = rush_and_judge(ShownTarget(shows, 0), f"sss{letter}oo")
        assert (run["verdict"], run["violations"], run["orders"]) == ("unknown", [], 4)
        assert run["outcomes"][outcome] == 1
    assert run["why"] == "1 had no final answer (1 error); the shop says: no such page"


@pytest.mark.parametrize("opened", [3, 40])
def test_sale_with_other_units_is_refused_before_the_rush(opened: int) -> None:
    target = ShownTarget(list_orders(0, 1, 2, 3), 0)
    target.lefts = [opened, 0]
    with pytest.raises(TargetError, match=rf"open\(4\) put up {opened} units, by stock\(\)"):
        rush_and_judge(target, "ssssoo")


def test_report_lists_what_was_judged_and_what_was_not() -> None:
    run = rush_and_judge(ShownTarget(4, None), "ssssoo")
    assert (run["verdict"], run["stock_left"], run["lost_updates"]) == ("exact", None, None)
    assert len(run["judged"]) == 2
    buyers, stock, keys = run["not_judged"]
    assert "orders() returns a number" in buyers
    assert "there is no stock()" in stock
    assert "no idempotency key" in keys
    target = ShownTarget(list_orders(0, 1, 2, 3), 0)
    target.repeatable = True
    run = rush_and_judge(target, "ssssoo")
    assert (len(run["judged"]), run["not_judged"]) == (4, [])
