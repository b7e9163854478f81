"""`reserve` while everything happens at once: reconciliation while consumers settle, restocks while
promises are open. The sums stay exact."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from django.db import connection
from pytest_django import Settings

from shop.models import PurchaseHistory
from shop.ops.redis import locks_client
from shop.reserve import consumer
from shop.reserve.promises import STREAM, promised
from shop.reserve.reconcile import reconcile
from shop.sale.reports import sale_report
from shop.tests.till import books, buy, committed, open_sale, settle_all

buy_reserved = partial(buy, lock="reserve")
TIMEOUT = 60


@contextmanager
def consumers(count: int) -> Iterator[None]:
    """Consumers in threads, for as long as the block lasts."""
    stop = threading.Event()

    def run(number: int) -> None:
        try:
            consumer.run(stop)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(run, number) for number in range(count)]
        try:
            yield
        finally:
            stop.set()
    for one in running:
        one.result()


@committed
def test_reconciliation_finds_nothing_wrong_while_two_consumers_settle_and_buyers_buy(
    settings: Settings,
) -> None:
    """Some keys have an order already: their units come back while it looks."""
    sale = open_sale(200)
    buy_reserved(key="begins", buyer="begins")
    for number in range(0, 60, 6):
        buy(key=f"k{number}", buyer=f"b{number}", lock="redis")
    locks_client().decrby(f"stock:{{reserve}}:{sale.pk}", 10)  # Redis does not know of these

    def come(number: int) -> str:
        try:
            return str(buy_reserved(key=f"k{number}", buyer=f"b{number}").body["outcome"])
        finally:
            connection.close()

    looks = []
    with consumers(2), ThreadPoolExecutor(4) as crowd:
        asked = [crowd.submit(come, number) for number in range(60)]
        while not all(one.done() for one in asked):
            found = reconcile(sale)
            looks.append((found.undersold, found.overpromised))
    assert {one.result(TIMEOUT) for one in asked} == {"sold"}
    settle_all()
    assert set(looks) == {(0, 0)}
    assert books() == (61, 139)
    report = sale_report(sale.pk).as_dict()
    assert (report["settled"], report["broken_promises"], report["unsettled"]) == (51, 10, 0)
    lag = report["settlement_lag_ms"]
    assert 0 <= lag["p50"] <= lag["p99"] <= lag["max"]
    assert promised(sale.pk)[0] == 139


@committed
def test_restocks_while_promises_are_open_keep_every_sale_exact() -> None:
    sales = [open_sale(30)]
    answers: dict[str, int] = {}

    def come(number: int) -> None:
        try:
            answer = buy_reserved(key=f"k{number}", buyer=f"b{number}")
            if answer.status == 201:
                answers[f"k{number}"] = answer.body["sale"]
        finally:
            connection.close()

    with consumers(2), ThreadPoolExecutor(4) as crowd:
        for restocked in range(4):
            done = [crowd.submit(come, restocked * 20 + number) for number in range(20)]
            sales.append(open_sale(30))
            for one in done:
                one.result(TIMEOUT)
    settle_all()
    written = dict(PurchaseHistory.objects.values_list("idempotency_key", "sale_id"))
    assert written == answers
    for sale in sales:
        report = sale_report(sale.pk).as_dict()
        assert (report["lost_updates"], report["broken_promises"], report["oversold"]) == (0, 0, 0)
    assert locks_client().xlen(STREAM) == 0
