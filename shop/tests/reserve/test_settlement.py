"""Settlement: a promise that is settled twice, or after a crash, is one order."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, InterfaceError, connection

from shop.models import Product, PurchaseHistory, Sale
from shop.ops.redis import locks_client
from shop.reserve.promises import BROKEN_STREAM, STREAM, attempt_key, read_promises
from shop.reserve.settle import Ending, acknowledge, settle, settle_batch, settle_or_split
from shop.sale.points import installed
from shop.sale.reports import sale_report
from shop.schedules.interleaving import Interleaving
from shop.tests.database import (
    ReplyCutter,
    database_at,
    has_waiting_statement,
    kill_this_threads_backend,
)
from shop.tests.node import run_python
from shop.tests.purchases import (
    APPLE,
    buy,
    committed,
    count_orders_and_stock,
    eventually,
    make_probe,
    open_sale,
    promise_orders,
    settle_all,
)

pytestmark = committed

buy_reserved = partial(buy, lock="reserve")


def count_unsettled() -> int:
    """Return the entries of the stream of promises."""
    return int(locks_client().xlen(STREAM))


def read_settlement(sale: Sale) -> tuple[int, int, int]:
    """Return the promises of a sale that are settled, broken and unsettled."""
    report = sale_report(sale.pk).as_dict()
    return report["settled"], report["broken_promises"], report["unsettled"]


def crash() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("point", "failure", "written_orders"),
    [("settled", crash, 3), ("settling", kill_this_threads_backend, 0)],
    ids=["between commit and XDEL", "in the batch"],
)
def test_every_order_of_a_crashed_consumer_is_written_once(
    point: str, failure: Callable[[], None], written_orders: int
) -> None:
    open_sale(5)
    promise_orders("a", "b", "c")
    errors = (KeyboardInterrupt, DatabaseError, InterfaceError)
    with installed(make_probe(point, failure)), pytest.raises(errors):
        settle_all()
    connection.close()
    assert (PurchaseHistory.objects.count(), count_unsettled()) == (written_orders, 3)
    settle_batch()
    assert (count_orders_and_stock(), count_unsettled()) == ((3, 2), 0)


def test_second_settlement_has_no_effect() -> None:
    sale = open_sale(5)
    promise_orders("a", "b")
    promises = read_promises(sale.pk)[1]
    for acknowledged_count in (2, 0):
        endings = settle(promises)
        assert set(endings.values()) == {Ending.KEPT}
        ended_promises = [
            (promise.entry, promise.sale, endings[promise.entry]) for promise in promises
        ]
        assert acknowledge(ended_promises) == acknowledged_count
    assert count_orders_and_stock() == (2, 3)
    assert read_settlement(sale) == (2, 0, 0)


def test_commit_without_a_reply_is_one_order() -> None:
    """The promises are settled again."""
    open_sale(3)
    promise_orders("a", "b")
    with (
        ReplyCutter() as proxy,
        database_at(proxy.folder),
        pytest.raises((DatabaseError, InterfaceError)),
    ):
        settle_all()
    assert (proxy.has_lost_reply, count_unsettled()) == (True, 2)
    assert (count_orders_and_stock(), count_unsettled()) == ((2, 1), 0)


def test_existing_order_with_the_same_key_or_number_stays() -> None:
    """Another strategy may have sold to the key; the promised unit is then free again.

    A database that was restored from a backup may have used the number for another order.
    """
    sale = open_sale(4)
    promise_orders("a", "c")
    number = read_promises(sale.pk)[1][1].order
    other = {"sale": sale, "product_name": APPLE, "lock": "redis", "stock_seen": 3}
    orders = PurchaseHistory.objects
    orders.create(**other, purchaser="a", idempotency_key="a", fingerprint="other")
    orders.create(**other, pk=number, purchaser="b")
    Product.objects.filter(name=APPLE).update(amount=2)
    settle_all()
    assert (count_orders_and_stock(), read_promises(sale.pk)[0]) == ((2, 2), 4 - 2 + 1)
    assert read_settlement(sale)[1] == 2
    assert orders.get(pk=number).purchaser == "b"


def test_last_unit_of_a_closed_sale_is_one_order() -> None:
    """The promises name a wrong product, so that only the CHECK protects the stock."""
    sale = open_sale(1)
    promise_orders("a")
    open_sale(5)
    (promise,) = read_promises(sale.pk)[1]
    first_promise = replace(promise, product=0)
    second_promise = replace(
        first_promise, order=first_promise.order + 10_000, key="b", entry="1-1"
    )
    with Interleaving() as threads:
        first = threads.enter("first", partial(settle_or_split, [first_promise])).run_to("settling")
        second = threads.enter("second", partial(settle_or_split, [second_promise])).resume()
        eventually(has_waiting_statement, what="the second settlement waits for the sale's row")
        assert first.finish() == {first_promise.entry: Ending.KEPT}
        assert second.finish() == {second_promise.entry: Ending.BROKEN}
    sale.refresh_from_db()
    assert (sale.orders.count(), sale.final_stock) == (1, 0)


def test_key_with_a_second_promise_gets_its_first_order() -> None:
    """The promised number never becomes an order; after the settlement no answer contains it."""
    sale = open_sale(3)
    first_order = buy_reserved(key="a").body["order"]
    settle_all()
    locks_client().delete(attempt_key("a"))  # a day later
    assert buy_reserved(key="a").body["order"] != first_order, "a promise that will be broken"
    settle_all()
    assert read_settlement(sale)[1] == 1
    again = buy_reserved(key="a")
    assert (again.status, again.body["order"], again.body["replayed"]) == (200, first_order, True)
    assert buy_reserved(key="a", buyer="bob").status == 422
    assert count_orders_and_stock() == (1, 2)


# --- the end of a consumer ------------------------------------------------------------------------

#: Receives SIGTERM while stop.wait() has the lock of its event.
CONSUMER_PROGRAM = """
import os, signal, time
import django
django.setup()
from django.core.management import call_command
from shop.reserve import settle

def settle_until(stop, alive_file):
    with stop._cond:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
    assert stop.wait(10)

settle.settle_until = settle_until
call_command("settle")
"""


def test_sigterm_ends_the_wait_for_a_batch() -> None:
    completed = run_python("-c", CONSUMER_PROGRAM)
    assert completed.returncode == 0, completed.stderr


# --- entries that cannot be settled ---------------------------------------------------------------


UNREADABLE: list[dict[str, Any]] = [
    {"seen": 3, "order": "{"},
    {"seen": "many", "order": "{}"},
    {"seen": 3, "order": '{"of": "a newer node"}'},
    {"other": "fields"},
]


def test_unreadable_entry_is_set_aside() -> None:
    """All other promises are settled."""
    client: Any = locks_client()
    sale = open_sale(5)
    promise_orders("a")
    for fields in UNREADABLE:
        client.xadd(STREAM, {"sale": sale.pk, **fields})
        client.xadd(STREAM, fields)  # of an unknown sale
    promise_orders("b")
    assert read_settlement(sale) == (0, 0, 6)
    settle_all()
    assert (count_orders_and_stock(), count_unsettled()) == ((2, 3), 0)
    assert read_settlement(sale) == (2, 4, 0)
    broken_entries = [fields for _, fields in client.xrange(BROKEN_STREAM)]
    for broken_entry, fields in zip(broken_entries[::2], UNREADABLE, strict=True):
        assert {name.decode() for name in broken_entry} >= fields.keys()
    assert buy_reserved(key="c").status == 201


def test_order_that_postgresql_refuses_is_broken() -> None:
    """The other promises of its batch are settled."""
    sale = open_sale(5)
    promise_orders("a", "b")
    client: Any = locks_client()
    ((_, entry),) = client.xrange(STREAM, count=1)
    invalid_order = json.loads(entry[b"order"]) | {"order": 10**9, "key": "w", "buyer": "w\0"}
    client.xadd(STREAM, {"sale": sale.pk, "seen": 3, "order": json.dumps(invalid_order)})
    promise_orders("c")
    settle_all()
    assert (count_orders_and_stock(), count_unsettled()) == ((3, 2), 0)
    assert read_settlement(sale) == (3, 1, 0)
