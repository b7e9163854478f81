"""`reserve` while everything happens at once: the same keys on both servers, reconciliation while
consumers settle, a restock while promises are open. The sums stay exact."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from django.db import connection
from pytest_django import Settings

from servers.valkey import Valkey
from shop.models import PurchaseHistory
from shop.ops.redis import locks_client
from shop.reserve.consumer import Settler
from shop.reserve.promises import STREAM, promised
from shop.reserve.reconcile import reconcile
from shop.sale.reports import sale_report
from shop.tests.node import new_database, node_at
from shop.tests.till import books, buy, committed, open_sale, settle_all

buy_reserved = partial(buy, lock="reserve")
TIMEOUT = 60


@contextmanager
def consumers(count: int) -> Iterator[None]:
    """So many consumers in threads, for as long as the block lasts."""
    stop = threading.Event()

    def run(number: int) -> None:
        try:
            Settler(stop).run()
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


@pytest.fixture(scope="module")
def database() -> str:
    return new_database()


def test_the_same_keys_on_both_servers_at_once_have_one_promise_each(
    folder: Path, valkey: Valkey, database: str
) -> None:
    """Two nodes before one database and one Redis; each key is asked four times, twice on each."""
    keys, units = 30, 20
    with ExitStack() as nodes:
        served = [
            nodes.enter_context(
                node_at(
                    folder / f"both-{server}.log", valkey=valkey, DATABASE_URL=database,
                    WEB_SERVER=server, SHOP_LONGEST_UNSETTLED="60",
                )
            )
            for server in ("gthread", "asgi")
        ]  # fmt: skip
        sale = served[0].restock(units)
        numbers: dict[str, set[int]] = defaultdict(set)
        statuses: Counter[int] = Counter()

        def ask(number: int) -> None:
            key = f"both-{number % keys}"
            body = json.dumps({"buyer": key, "lock": "reserve"}).encode()
            status, answer = served[number // keys % 2].ask(
                "POST", "/buy", body, {"Idempotency-Key": key}
            )
            statuses[status] += 1
            if status in (200, 201):
                numbers[key].add(int(answer["order"]))

        with ThreadPoolExecutor(8) as crowd:
            list(crowd.map(ask, range(4 * keys)))
        assert statuses == {201: units, 200: 3 * units, 409: 4 * (keys - units)}
        assert {len(found) for found in numbers.values()} == {1}
        assert len({number for found in numbers.values() for number in found}) == units
        _, report = served[1].get(f"/sales/{sale}")
        assert (report["unsettled"], report["orders"]) == (units, 0)
