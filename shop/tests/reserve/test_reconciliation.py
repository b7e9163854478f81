"""The strategy `reserve` after Redis has lost data, and what `manage.py reconcile` then reports.

Under `reserve` Redis sells a unit by promising it: it decrements the sale's counter, and appends
the promise to a stream. The order is written to PostgreSQL later; this settles the promise.
"""

import gzip
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from pytest_django import Settings

from shop.management.commands.reconcile import read_sold_orders, reconcile
from shop.ops.redis import locks_client
from shop.reserve.promises import counter_key, promise_key, read_promises
from shop.reserve.settle import settle
from shop.sale.reports import find_latest_sale_id, sale_report
from shop.tests.outage import Outage
from shop.tests.purchases import (
    buy,
    committed,
    count_orders_and_stock,
    open_sale,
    promise_orders,
    settle_all_promises,
)

pytestmark = committed

buy_reserved = partial(buy, lock="reserve")


def test_counter_and_orders_are_restored_to_an_empty_redis() -> None:
    """After Redis has lost all keys, the next purchase restores them from the database.

    The keys `a` and `b` have bought 2 of 5 units. A retry with `a` gets its order again, and the
    new counter has the other 3 units.
    """
    sale = open_sale(5)
    order_numbers = promise_orders("a", "b")
    settle_all_promises()
    locks_client().flushall()
    replay = buy_reserved(key="a", buyer="a")
    unpromised_units, _ = read_promises(sale.pk)
    assert unpromised_units == 3
    assert (replay.status, replay.body["order"]) == (200, order_numbers[0])
    assert promise_orders("c")[0] not in order_numbers
    assert count_orders_and_stock() == (3, 2)


def test_evicted_counter_restarts_without_promised_units() -> None:
    """If Redis evicts the counter, a new counter starts without the units that are promised.

    It starts at 2: five units minus the three promises that are still on the stream.
    """
    sale = open_sale(5)
    _, order_of_b, _ = promise_orders("a", "b", "c")
    client = locks_client()
    client.delete(counter_key(sale.pk), *map(promise_key, "abc"))
    assert promise_orders("b") == [order_of_b], "the stream still has the promise"
    unpromised_units, _ = read_promises(sale.pk)
    assert unpromised_units == 2
    assert count_orders_and_stock() == (3, 2)


def test_sale_without_redis_is_reported_and_promises_nothing(redis_outage: Outage) -> None:
    """During an outage of Redis a purchase is refused.

    The report still has the number of orders, which are in PostgreSQL, but no figures on promises.
    """
    sale = open_sale(2)
    redis_outage.begin()
    assert buy_reserved(key="a").body["outcome"] == "unavailable"
    report = sale_report(sale.pk).as_dict()
    assert (report["orders"], report["unsettled"], report["settlement_lag_ms"]) == (0, None, None)


def test_restock_without_redis_is_refused(redis_outage: Outage, settings: Settings) -> None:
    """During an outage of Redis a restock is refused, and the old sale stays open.

    The old sale cannot be closed, because Redis might go on selling (promising) its units.
    """
    sale = open_sale(2)
    settings.SHOP_DEMO = False
    settings.SHOP_LOCK = "reserve"
    settings.SHOP_RESTOCK_TOKEN = "t" * 24
    redis_outage.begin()
    headers = {"Authorization": f"Bearer {settings.SHOP_RESTOCK_TOKEN}"}
    answer = Client().post("/restock", {"stock": "3"}, headers=headers)
    assert (answer.status_code, answer.json()["outcome"]) == (503, "unavailable")
    with pytest.raises(CommandError, match="nothing was changed"):
        call_command("restock", "--stock=3")
    assert find_latest_sale_id(product=sale.product.name) == sale.pk


def test_lost_promises_are_found_by_their_answers(tmp_path: Path) -> None:
    """manage.py reconcile finds lost orders by the answers `sold` in the access logs.

    In a sale of 5 units, three buyers get the answer `sold`. One order is written. Then Redis loses
    the promises of the other two orders. Log lines of another sale, or without an order, are
    ignored.
    """
    sale = open_sale(5)
    written_orders = promise_orders("a")
    settle_all_promises()
    lost_orders = promise_orders("b", "c")
    locks_client().flushall()
    log = tmp_path / "access.log"
    lines = [
        f"... status=201 outcome=sold order={number} sale={sale.pk}"
        for number in written_orders + lost_orders
    ]
    lines += [f"... status=201 outcome=sold order=999 sale={sale.pk + 1}", "status=409 ms=3"]
    log.write_text("\n".join(lines))
    balance = reconcile(sale, access_log=lines)
    assert balance["not_kept"] == lost_orders
    # In PostgreSQL one unit of five is sold. Redis has neither a counter nor promises.
    assert (balance["left"], balance["sellable"], balance["unsettled"]) == (4, None, 0)
    out = StringIO()
    with pytest.raises(CommandError, match="promises and orders differ"):
        call_command("reconcile", "--answers", log, stdout=out, no_color=True)
    assert "not_kept       2\n" in out.getvalue()
    assert f"order {lost_orders[0]} is lost, but its buyer was answered `sold`" in out.getvalue()
    promise_orders("d", "e", "f", "g")  # these buyers get the four units that are left
    assert buy_reserved(key="h").status == 409
    assert count_orders_and_stock() == (5, 0), "there should be as many orders as units"


def test_sold_orders_are_read_from_a_json_log() -> None:
    """read_sold_orders() returns the order of an answer `sold`, but not of an answer `sold_out`."""
    line = '{"status": 201, "outcome": "sold", "order": 12, "sale": 7, "lock": "reserve"}'
    assert read_sold_orders([line, line.replace("sold", "sold_out")], 7) == {12}


def test_compressed_log_is_refused(tmp_path: Path) -> None:
    """`reconcile --answers` refuses a compressed log.

    Without the refusal, the command would find no answer in the log, and report no lost order.
    """
    open_sale(1)
    (tmp_path / "access.log.gz").write_bytes(gzip.compress(b"outcome=sold order=1 sale=1"))
    with pytest.raises(CommandError, match=r"--answers: .* give readable text files"):
        call_command("reconcile", "--answers", tmp_path / "access.log.gz")


@pytest.mark.parametrize(
    ("counter_error", "undersold", "overpromised"), [(0, 0, 0), (-2, 2, 0), (+3, 0, 3)]
)
def test_reconciliation_finds_a_wrong_counter(
    counter_error: int, undersold: int, overpromised: int
) -> None:
    """Reconciliation reports a counter in Redis that does not match the stock in PostgreSQL.

    After the wrong counter is deleted, the next purchase creates a correct counter.

    counter_error  the number that is added to the counter of units that Redis may still sell
    undersold      the reported number of unsold units that Redis will not sell
    overpromised   the reported number of units that Redis may sell, but that do not exist
    """
    sale = open_sale(9)
    promise_orders("a")
    settle_all_promises()
    promise_orders("b", "c")
    locks_client().incrby(counter_key(sale.pk), counter_error)
    wrong_balance = reconcile(sale)
    assert wrong_balance["undersold"] == undersold
    assert wrong_balance["overpromised"] == overpromised
    assert wrong_balance["unsettled"] == 2
    locks_client().delete(counter_key(sale.pk))
    promise_orders("d")
    balance = reconcile(sale)
    assert (balance["undersold"], balance["overpromised"]) == (0, 0)
    assert balance["sellable"] == 5  # 9 units minus the purchases of a, b, c and d


def test_committed_order_on_the_stream_is_counted_once() -> None:
    """Reconciliation counts a unit once, even while it has both an order and a promise.

    This happens between the commit of the order and the deletion of the promise from the stream.
    """
    sale = open_sale(5)
    promise_orders("a")
    _, unsettled_promises = read_promises(sale.pk)
    settle(unsettled_promises)
    _, promises_on_stream = read_promises(sale.pk)
    assert len(promises_on_stream) == 1, (
        "the promise should still exist, because only acknowledge() deletes it"
    )
    balance = reconcile(sale)
    assert [balance[name] for name in ("unsettled", "undersold", "overpromised")] == [0, 0, 0]
