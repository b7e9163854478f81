"""A promise in the history: the node that made it has recorded its order, whoever writes that."""

from __future__ import annotations

from typing import Any

from loadtest.judge.intervals import ProductHistory
from loadtest.judge.sale_record import Asked
from loadtest.judge.verdict import Judgement, judge
from loadtest.tests.happenings import Happenings

A, B = "run/a", "run/b"


def promised(*, lock: str = "reserve", replayed: bool = False) -> Judgement:
    """Two units, promised to B with the lower number after A with the higher one."""
    sale = Happenings(stock=2)
    for ms, key, number, seen in ((0, A, 9, 2), (10, B, 8, 1)):
        sale.asks(ms, key)
        sale.at(ms + 1, key, "begins", "invoke", lock=lock)
        sale.at(ms + 2, key, "reserve", "invoke")
        sale.at(ms + 3, key, "reserved", order=number, amount=seen, sale=1)
        sale.answered(ms + 4, key, "sold", number)
    if replayed:
        sale.asks(20, A)
        sale.at(20.5, A, "begins", "invoke", lock=lock)
        sale.at(21, A, "reserve", "invoke")
        sale.at(22, A, "reserved", order=9, amount=2, sale=1)
        sale.answered(23, A, "sold", 9)
    orders: list[dict[str, Any]] = [
        {"order": 8, "key": B, "lock": lock, "stock_seen": 1, "fence": None},
        {"order": 9, "key": A, "lock": lock, "stock_seen": 2, "fence": None},
    ]
    return judge(
        initial_stock=2,
        stock_left=0,
        orders=orders,
        history=ProductHistory(sale.events),
        asked=Asked(stock=2, buyers=[A, B], lock=lock, recorded=True),
    )


def test_an_order_that_was_promised_was_recorded_in_whichever_order_the_numbers_are() -> None:
    judged = promised()
    assert (judged.verdict, judged.violations) == ("exact", ())


def test_a_promise_that_is_named_again_was_made_once() -> None:
    assert promised(replayed=True).violations == ()


def test_the_order_of_the_numbers_counts_where_each_order_is_written_before_the_next() -> None:
    assert "commit_order" in promised(lock="counter").violations
