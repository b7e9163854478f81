"""Settlement: a consumer writes each promised order to PostgreSQL once, also after a crash.

A promise that can be no order is broken: it is moved to another stream, and the others are settled.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, InterfaceError, connection

from shop.models import Product, PurchaseHistory, Sale
from shop.ops.redis import locks_client
from shop.reserve.promises import BROKEN_STREAM, STREAM, promise_key, read_promises
from shop.reserve.settle import Ending, acknowledge, settle, settle_batch, settle_or_split
from shop.sale.points import use_probe
from shop.sale.reports import sale_report
from shop.schedules.interleaving import Interleaving
from shop.tests.database import (
    CommitReplyDropper,
    connect_django_to,
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
    settle_all_promises,
)

pytestmark = committed

buy_reserved = partial(buy, lock="reserve")


def count_unsettled() -> int:
    """Return the number of entries on the stream of promises."""
    return int(locks_client().xlen(STREAM))


def read_settlement(sale: Sale) -> tuple[int, int, int]:
    """Return the numbers of a sale's promises that are settled, broken and unsettled."""
    report = sale_report(sale.pk).as_dict()
    return report["settled"], report["broken_promises"], report["unsettled"]


def crash() -> None:
    """End the consumer by an exception that no handler of errors catches."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("point", "failure", "written_orders"),
    [("settled", crash, 3), ("settling", kill_this_threads_backend, 0)],
    ids=["between commit and XDEL", "in the batch"],
)
def test_every_order_of_a_crashed_consumer_is_written_once(
    point: str, failure: Callable[[], None], written_orders: int
) -> None:
    """The next consumer settles the batch again.

    written_orders  the orders that the crashed consumer wrote
    """
    open_sale(5)
    promise_orders("a", "b", "c")
    errors = (KeyboardInterrupt, DatabaseError, InterfaceError)
    with use_probe(make_probe(point, failure)), pytest.raises(errors):
        settle_all_promises()
    connection.close()  # as the end of the consumer's process would
    assert (PurchaseHistory.objects.count(), count_unsettled()) == (written_orders, 3)
    settle_batch()
    assert (count_orders_and_stock(), count_unsettled()) == ((3, 2), 0)


def test_second_settlement_has_no_effect() -> None:
    """Two consumers settle the same promises; only the first counts them as settled."""
    sale = open_sale(5)
    promise_orders("a", "b")
    _, promises = read_promises(sale.pk)
    for acknowledged_count in (2, 0):  # by the first settlement, and by the second one
        endings = settle(promises)
        assert set(endings.values()) == {Ending.KEPT}
        ended_promises = [
            (promise.entry, promise.sale, endings[promise.entry]) for promise in promises
        ]
        assert acknowledge(ended_promises) == acknowledged_count
    assert count_orders_and_stock() == (2, 3)
    assert read_settlement(sale) == (2, 0, 0)  # settled, broken, unsettled


def test_lost_commit_reply_does_not_duplicate_orders() -> None:
    """The reply to the consumer's COMMIT is lost, so the promises stay on the stream.

    count_orders_and_stock() settles them again, and no order is written twice.
    """
    open_sale(3)
    promise_orders("a", "b")
    with (
        CommitReplyDropper() as proxy,
        connect_django_to(proxy.folder),
        pytest.raises((DatabaseError, InterfaceError)),
    ):
        settle_all_promises()
    assert (proxy.has_lost_reply, count_unsettled()) == (True, 2)
    assert (count_orders_and_stock(), count_unsettled()) == ((2, 1), 0)


def test_existing_order_with_the_same_key_or_number_stays() -> None:
    """Both promises are broken, because their key or their number already has an order.

    The key `a` has an order under another strategy, so the unit promised to it is free again. The
    number promised to `c` belongs to another buyer's order, as after a restore from a backup.
    """
    sale = open_sale(4)
    _, second_number = promise_orders("a", "c")
    fields = {"sale": sale, "product_name": APPLE, "lock": "redis", "stock_seen": 3}
    orders = PurchaseHistory.objects
    orders.create(**fields, purchaser="a", idempotency_key="a", fingerprint="other")
    orders.create(**fields, pk=second_number, purchaser="b")
    # The two orders were created without taking their units from the stock of four.
    Product.objects.filter(name=APPLE).update(amount=2)
    settle_all_promises()
    unpromised_units, _ = read_promises(sale.pk)
    assert unpromised_units == 3, "one of the two promised units should be free again"
    assert count_orders_and_stock() == (2, 2)
    _, broken_count, _ = read_settlement(sale)
    assert broken_count == 2
    assert orders.get(pk=second_number).purchaser == "b"


def test_last_unit_of_a_closed_sale_is_sold_once() -> None:
    """Two consumers settle two promises of the last unit at once, and the first one sells it.

    The promises name a product that does not exist, so neither consumer waits for a lock on its
    row, and only the CHECK of the database protects the stock.
    """
    sale = open_sale(1)
    promise_orders("a")
    open_sale(5)  # closes the first sale
    _, [promise] = read_promises(sale.pk)
    first_promise = replace(promise, product=0)  # no product has the id 0
    second_promise = replace(
        first_promise, order=first_promise.order + 10_000, key="b", entry="1-1"
    )
    with Interleaving() as threads:
        first = threads.start("first", partial(settle_or_split, [first_promise])).run_to("settling")
        second = threads.start("second", partial(settle_or_split, [second_promise])).resume()
        eventually(has_waiting_statement, what="the second settlement waits for the sale's row")
        assert first.finish() == {first_promise.entry: Ending.KEPT}
        assert second.finish() == {second_promise.entry: Ending.BROKEN}
    sale.refresh_from_db()
    assert (sale.orders.count(), sale.final_stock) == (1, 0)


def test_key_with_a_second_promise_gets_its_first_order() -> None:
    """A buyer repeats a key after the promise in Redis has expired.

    Redis then promises a second order, which is never written. After the settlement the key gets
    its first order again.
    """
    sale = open_sale(3)
    first_order = buy_reserved(key="a").body["order"]
    settle_all_promises()
    locks_client().delete(promise_key("a"))  # as if it had expired
    assert buy_reserved(key="a").body["order"] != first_order
    settle_all_promises()
    _, broken_count, _ = read_settlement(sale)
    assert broken_count == 1
    again = buy_reserved(key="a")
    assert (again.status, again.body["order"], again.body["replayed"]) == (200, first_order, True)
    assert buy_reserved(key="a", buyer="bob").status == 422
    assert count_orders_and_stock() == (1, 2)


# --- the end of a consumer ------------------------------------------------------------------------

#: A consumer that receives SIGTERM while its thread has the lock of the event `stop`, as inside
#: stop.wait(). A signal handler that set the event in this thread would wait for the lock forever.
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


UNREADABLE_ENTRIES: list[dict[str, Any]] = [
    {"seen": 3, "order": "{"},
    {"seen": "many", "order": "{}"},
    {"seen": 3, "order": '{"of": "a newer node"}'},
    {"other": "fields"},
]


def test_unreadable_stream_entry_is_moved_to_the_broken_stream() -> None:
    """Stream entries that are not promises are moved to the stream of broken promises.

    All promises are settled, and the strategy continues to sell.
    """
    client: Any = locks_client()
    sale = open_sale(5)
    promise_orders("a")
    for fields in UNREADABLE_ENTRIES:
        client.xadd(STREAM, {"sale": sale.pk, **fields})
        client.xadd(STREAM, fields)  # without the number of a sale
    promise_orders("b")
    assert read_settlement(sale) == (0, 0, 6)  # settled, broken, unsettled
    settle_all_promises()
    assert (count_orders_and_stock(), count_unsettled()) == ((2, 3), 0)
    assert read_settlement(sale) == (2, 4, 0)
    broken_entries = [fields for _, fields in client.xrange(BROKEN_STREAM)]
    entries_of_sale = broken_entries[::2]  # every other entry has no number of a sale
    for broken_entry, fields in zip(entries_of_sale, UNREADABLE_ENTRIES, strict=True):
        assert {name.decode() for name in broken_entry} >= fields.keys()
    assert buy_reserved(key="c").status == 201


def test_promise_with_an_invalid_order_is_broken() -> None:
    """The buyer's name contains a NUL character, which PostgreSQL cannot store."""
    sale = open_sale(5)
    promise_orders("a", "b")
    client: Any = locks_client()
    ((_, entry),) = client.xrange(STREAM, count=1)
    invalid_order = json.loads(entry[b"order"]) | {"order": 10**9, "key": "w", "buyer": "w\0"}
    client.xadd(STREAM, {"sale": sale.pk, "seen": 3, "order": json.dumps(invalid_order)})
    promise_orders("c")
    settle_all_promises()
    assert (count_orders_and_stock(), count_unsettled()) == ((3, 2), 0)
    assert read_settlement(sale) == (3, 1, 0)
