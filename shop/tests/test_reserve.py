"""`reserve`: each branch of its script, what a lost Redis means, and what reconciliation finds."""

from __future__ import annotations

from functools import partial
from typing import Any

from pytest_django import Settings

from shop.demo.interleaving import Interleaving
from shop.models import Product, PurchaseHistory, Sale
from shop.ops.redis import locks_client
from shop.reserve import order_numbers, promises
from shop.reserve.consumer import Settler
from shop.reserve.promises import KEEP, STREAM, attempt_key, count_key, promised
from shop.sale.reports import sale_report
from shop.tests.till import (
    APPLE,
    assert_asks_to_come_back,
    books,
    buy,
    committed,
    eventually,
    open_sale,
    settle_all,
)

pytestmark = committed

buy_reserved = partial(buy, lock="reserve")


def sell(*keys: str) -> list[int]:
    """The orders that buyers with these keys are promised."""
    return [int(buy_reserved(key=key, buyer=key).body["order"]) for key in keys]


def sellable(sale: Sale) -> int | None:
    return promised(sale.pk)[0]


# --- a promise ----------------------------------------------------------------------------------


def test_a_buyer_is_answered_with_the_order_that_exists_once_it_is_settled() -> None:
    sale = open_sale(3)
    answer = buy_reserved(key="k1")
    assert (answer.status, answer.body["outcome"], answer.body["stock_seen"]) == (201, "sold", 3)
    assert PurchaseHistory.objects.count() == 0, "nobody waited for the order"
    settle_all()
    order = PurchaseHistory.objects.get(idempotency_key="k1")
    assert order.pk == answer.body["order"]
    assert (order.sale_id, order.lock, order.stock_seen) == (sale.pk, "reserve", 3)
    assert books() == (1, 2)


def test_the_same_attempt_is_promised_one_unit_before_and_after_it_is_settled() -> None:
    sale = open_sale(3)
    first = buy_reserved(key="k1")
    again = buy_reserved(key="k1")
    settle_all()
    later = buy_reserved(key="k1")
    assert [a.status for a in (first, again, later)] == [201, 200, 200]
    assert {a.body["order"] for a in (first, again, later)} == {first.body["order"]}
    assert (sellable(sale), books()) == (2, (1, 2))


def test_a_key_that_bought_in_an_earlier_sale_takes_nothing_from_this_one() -> None:
    open_sale(3)
    first = buy_reserved(key="k1")
    sale = open_sale(5)
    again = buy_reserved(key="k1")
    assert (again.status, again.body["order"]) == (200, first.body["order"])
    assert (sellable(sale), books()) == (None, (1, 5))


def test_a_repeated_key_with_another_request_is_422_before_it_is_settled_too() -> None:
    open_sale(3)
    buy_reserved(key="k1")
    assert buy_reserved(key="k1", buyer="bob").status == 422


def test_the_last_unit_is_promised_once_and_its_holder_gets_it_again() -> None:
    open_sale(1)
    assert [buy_reserved(key=key).status for key in ("a", "b", "a")] == [201, 409, 200]
    assert books() == (1, 0)


def test_what_is_kept_ends_a_day_after_its_last_use_and_the_stream_does_not() -> None:
    sale = open_sale(3)
    buy_reserved(key="k1")
    client: Any = locks_client()
    for key in (count_key(sale.pk), attempt_key("k1")):
        assert KEEP - 60_000 < client.pttl(key) <= KEEP
    assert client.pttl(STREAM) == -1


def test_a_backlog_that_is_too_long_promises_nothing_more_until_it_is_settled(
    settings: Settings,
) -> None:
    settings.SHOP_MOST_UNSETTLED = 2
    sale = open_sale(5)
    sell("a", "b")
    refused = buy_reserved(key="c")
    assert_asks_to_come_back(
        *(refused, "busy"),
        "Too many promised orders wait to be written; nothing was sold. Ask again, same key.",
    )
    assert buy_reserved(key="a", buyer="a").status == 200, "who has a unit is answered"
    assert sellable(sale) == 3
    settle_all()
    assert buy_reserved(key="c").status == 201


def test_while_the_oldest_promise_waits_for_too_long_nothing_more_is_promised(
    settings: Settings,
) -> None:
    """So the lag is bounded in time too, whatever the consumers write in a second."""
    settings.SHOP_LONGEST_UNSETTLED = 0.2
    sale = open_sale(1_000)
    first = buy_reserved(key="k0")
    made = promised(sale.pk)[1][0].made_at
    answers = [first]

    def is_refused() -> bool:
        answers.append(buy_reserved(key=f"k{len(answers)}"))
        return answers[-1].status != 201

    eventually(is_refused, what="it is refused")
    assert_asks_to_come_back(
        *(answers[-1], "busy"),
        "Too many promised orders wait to be written; nothing was sold. Ask again, same key.",
    )
    assert max(one.made_at for one in promised(sale.pk)[1]) <= made + 0.2
    assert buy_reserved(key="k0").status == 200, "who has a unit is answered"
    settle_all()
    assert buy_reserved(key="later").status == 201
    assert books() == (len(answers), 1_000 - len(answers))


def test_a_number_that_was_not_used_is_used_by_the_next() -> None:
    open_sale(1)
    first = sell("a")[0]
    for key in ("a", "b"):
        buy_reserved(key=key)
    assert order_numbers.take() == first + 1


# --- a sale that is closed ----------------------------------------------------------------------


def test_what_was_promised_before_the_sale_was_closed_is_kept_out_of_what_it_had_left() -> None:
    old = open_sale(3)
    sell("a", "b")
    new = open_sale(10)
    old.refresh_from_db()
    assert old.final_stock == 3, "nothing was settled by then"
    settle_all()
    old.refresh_from_db()
    assert (old.final_stock, old.orders.count(), new.orders.count()) == (1, 2, 0)
    assert Product.objects.get(name=APPLE).amount == 10


def test_from_the_close_on_nothing_more_of_the_sale_is_promised() -> None:
    """Another node that knows the old sale asks for it: its counter is gone, and is not begun."""
    old = open_sale(3)
    sell("a")
    known = promises._open[APPLE]
    new = open_sale(10)
    promises._open[APPLE] = known
    answer = buy_reserved(key="b")
    assert (answer.status, answer.body["sale"]) == (201, new.pk)
    assert (sellable(old), sellable(new)) == (None, 9)


# --- rushes -------------------------------------------------------------------------------------


def test_the_sums_are_exact_after_a_rush_that_is_settled_meanwhile() -> None:
    sale, units, buyers = open_sale(20), 20, 48
    answers: list[str] = []

    def come(number: int) -> None:
        answers.append(buy_reserved(key=f"k{number}", buyer=f"b{number}").body["outcome"])

    with Interleaving() as threads:  # gives each thread's connection back
        actors = [threads.enter(f"b{n}", partial(come, n)) for n in range(buyers)]
        consumer = Settler()
        for actor in actors:
            actor.starts()
        while not all(actor.stops_within(0) for actor in actors if actor.place is not None):
            consumer.step()
            for actor in actors:
                actor.starts()
        for actor in actors:
            actor.finishes()
    assert sorted(answers) == ["sold"] * units + ["sold_out"] * (buyers - units)
    assert books() == (units, 0)
    report = sale_report(sale.pk).as_dict()
    assert (report["settled"], report["unsettled"], report["lost_updates"]) == (units, 0, 0)
    lag = report["settlement_lag_ms"]
    assert 0 <= lag["p50"] <= lag["p99"] <= lag["max"]


# --- what waits, and who writes it ---------------------------------------------------------------


def test_what_waits_is_in_the_report_until_a_consumer_comes() -> None:
    sale = open_sale(5)
    sell("a", "b")
    assert sale_report(sale.pk).as_dict()["unsettled"] == 2
    settle_all()
    assert sale_report(sale.pk).as_dict()["unsettled"] == 0
