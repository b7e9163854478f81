"""A target without a shop: what it answers and what it shows are said by the test."""

import time
from typing import Any

from loadtest.judge.intervals import Request
from loadtest.rush.rush import Rush
from loadtest.target import Answer, Order, Target, error, sold, sold_out
from loadtest.target.answer import NONE
from loadtest.target.target import Orders

STOCK = 4


class Shown(Target):
    """Shows what it is given: `shows` after the rush, `showed` before it."""

    name = "shown"
    settles_s = 0.0

    def __init__(self, shows: Orders, left: int | None, *, showed: Orders = ()) -> None:
        super().__init__("http://127.0.0.1:9/")
        self.shown: list[Orders] = [showed, shows]
        self.lefts = [None if left is None else STOCK, left]

    def open(self, stock: int) -> None:
        assert stock == STOCK

    def orders(self) -> Orders:
        return self.shown.pop(0)

    def stock(self) -> int | None:
        return self.lefts.pop(0)


def rushed(
    target: Target, answers: str, *, order: bool = False, called: str = "no-{}"
) -> dict[str, Any]:
    """The run of a rush in which buyer n got the nth answer: s sold, o sold out, e error, - none.

    order   whether an answer `sold` names the order of its buyer: n plus 1, as a word
    called  that word
    """
    rush = Rush(target=target, buyers=len(answers), stock=STOCK, deadline_s=60, id="rush")
    rush.count.open(STOCK)
    requests = []
    for number, letter in enumerate(answers):
        key = rush.key(number)
        said = (
            sold(called.format(number + 1) if order else None)
            if letter == "s"
            else OTHER.get(letter, NONE)
        )
        request = Request(key, time.monotonic_ns())
        if letter != "-":
            answer(request, said)
        requests.append(request)
    rush.take(len(answers), requests)
    return rush.result()


OTHER = {"o": sold_out(), "e": error("no such page")}


def answer(request: Any, said: Answer) -> None:
    request.answer(said.outcome, {"order": said.order, "error": said.why})
    request.type = "info" if said.open else request.type


def listed(*buyers: int) -> list[Order]:
    """An order of each of these buyers, numbered from 1 by buyer."""
    return [Order(f"no-{number + 1}", f"buyer-{number}") for number in buyers]
