"""A product is looked for before the lock, once: no query, connection or memory is kept for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from shop.sale import on_sale
from shop.tests.till import answer_of, buy, committed, open_sale


@committed
def test_a_product_is_looked_for_once_and_not_again_while_it_is_on_sale() -> None:
    """A query before the lock would keep a pooled connection for as long as the buyer waits."""
    assert buy(product="asked-once").status == 404
    open_sale(10, product="asked-once")
    assert buy(product="asked-once").status == 201, "a refusal is not remembered"
    with CaptureQueriesContext(connection) as asked:
        assert buy(product="asked-once").status == 201
    of_products = [query["sql"] for query in asked if "product" in query["sql"]]
    assert of_products[0].strip().startswith("UPDATE product SET fence")


@committed
def test_the_connection_is_given_back_before_the_wait_for_the_lock() -> None:
    open_sale(1, product="given-back")
    on_sale.require_on_sale("given-back")
    assert connection.connection is None


@committed
def test_a_rush_for_a_product_that_is_new_to_the_process_asks_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_sale(50, product="new-here")
    asked: list[str] = []
    look = on_sale._is_on_sale

    def count(product: str) -> bool:
        asked.append(product)
        return look(product)

    monkeypatch.setattr(on_sale, "_is_on_sale", count)
    start = threading.Barrier(10)

    def one(number: int) -> int:
        start.wait(10)
        body = {"buyer": f"b{number}", "product": "new-here", "lock": "row-lock"}
        try:
            return answer_of(Client().post("/buy", body)).status
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as buyers:
        assert set(buyers.map(one, range(10))) == {201}
    assert asked == ["new-here"]


@committed
def test_what_is_known_of_products_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_sale, "MOST_KNOWN", 2)
    for number in range(5):
        open_sale(1, product=f"many-{number}")
        assert buy(product=f"many-{number}").status == 201
    assert len(on_sale._known) <= 2
