"""Settlement under the strategy `reserve`: a consumer writes the promised orders to PostgreSQL.

A promise is a unit that Redis has sold to a buyer, and an entry on a Redis stream. Its order is
written once, even after a crash of the consumer. If the order cannot be written, the promise is
broken: the consumer moves it to another stream, and settles the remaining promises.
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
    """Return the number of promises whose orders are not written yet: the entries of the stream."""
    return int(locks_client().xlen(STREAM))


def read_settlement(sale: Sale) -> tuple[int, int, int]:
    """Return how many of a sale's promises are settled, how many broken, and how many unsettled."""
    report = sale_report(sale.pk).as_dict()
    return report["settled"], report["broken_promises"], report["unsettled"]


def crash() -> None:
    """Raise an exception that the consumer does not catch."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("point", "failure", "written_orders"),
    [("settled", crash, 3), ("settling", kill_this_threads_backend, 0)],
    ids=["between commit and XDEL", "before the commit"],
)
def test_every_order_of_a_crashed_consumer_is_written_once(
    point: str, failure: Callable[[], None], written_orders: int
) -> None:
    """A consumer crashes in the middle of a batch, and the next consumer settles the batch again.

    point           the place in the code of the consumer at which it crashes
    failure         the function that makes the consumer crash there
    written_orders  the number of orders that the consumer has written before the crash
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
    """Two consumers settle the same promises. No order is written or counted twice.

    KEPT means that the order is written, now or earlier. acknowledge() deletes the promises from
    the stream, and returns how many it has deleted.
    """
    sale = open_sale(5)
    promise_orders("a", "b")
    _, promises = read_promises(sale.pk)
    deleted_counts = []
    for _ in range(2):
        endings = settle(promises)
        assert set(endings.values()) == {Ending.KEPT}
        deleted_counts.append(
            acknowledge(
                [(promise.entry, promise.sale, endings[promise.entry]) for promise in promises]
            )
        )
    assert deleted_counts == [2, 0]
    assert count_orders_and_stock() == (2, 3)
    assert read_settlement(sale) == (2, 0, 0)  # settled, broken, unsettled


def test_lost_commit_reply_does_not_duplicate_orders() -> None:
    """PostgreSQL's reply to the consumer's COMMIT is lost, so the promises stay on the stream.

    When they are settled again, by count_orders_and_stock(), no order is written twice.
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
    """A promise whose key or whose order number already has an order is broken.

    The key `a` has an order under another strategy, so the unit that was promised to it is free
    again. The order number that was promised to `c` belongs to another buyer's order, as it may
    after a restore from a backup.
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
    """Two promises of a closed sale need its last unit, and two consumers settle them at once.

    Consumers take turns by a lock on the product's row. Here the promises have the id of a product
    that does not exist, so there is no such lock, and only the CHECK of the database protects the
    stock. The first promise gets the unit, and the second one is broken.
    """
    sale = open_sale(1)
    promise_orders("a")
    open_sale(5)  # closes the first sale
    _, [promise] = read_promises(sale.pk)
    first_promise = replace(promise, product=0)  # no product has the id 0
    unused_order_number = promise.order + 10_000
    second_promise = replace(first_promise, order=unused_order_number, key="b", entry="1-1")
    with Interleaving() as threads:
        first = threads.start("first", partial(settle_or_split, [first_promise])).run_to("settling")
        second = threads.start("second", partial(settle_or_split, [second_promise]))
        eventually(has_waiting_statement, what="the second settlement waits for the sale's row")
        assert first.finish() == {first_promise.entry: Ending.KEPT}
        assert second.finish() == {second_promise.entry: Ending.BROKEN}
    sale.refresh_from_db()
    assert (sale.orders.count(), sale.final_stock) == (1, 0)


def test_key_with_a_second_promise_gets_its_first_order() -> None:
    """A buyer repeats a request after the promise of its key has expired in Redis.

    Redis then promises a second order. The consumer does not write it, because the key already has
    an order. After that, the key gets its first order again.
    """
    sale = open_sale(3)
    first_order = buy_reserved(key="a").body["order"]
    settle_all_promises()
    locks_client().delete(promise_key("a"))  # as if it had expired
    assert buy_reserved(key="a").body["order"] != first_order
    settle_all_promises()
    _, broken_count, _ = read_settlement(sale)
    assert broken_count == 1
    retry = buy_reserved(key="a")
    assert (retry.status, retry.body["order"], retry.body["replayed"]) == (200, first_order, True)
    assert buy_reserved(key="a", buyer="bob").status == 422
    assert count_orders_and_stock() == (1, 2)


# --- the end of a consumer ------------------------------------------------------------------------

#: A consumer that receives SIGTERM while its main thread holds the lock inside the event `stop`, as
#: during stop.wait(). The signal handler runs in the same thread. If the handler set the event
#: itself, it would wait for this lock forever.
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


def test_sigterm_stops_a_consumer_that_waits() -> None:
    """`manage.py settle` exits with 0 if SIGTERM comes while it waits between two batches."""
    completed = run_python("-c", CONSUMER_PROGRAM)
    assert completed.returncode == 0, completed.stderr


# --- entries that cannot be settled ---------------------------------------------------------------


#: Fields of stream entries that are not promises. A promise has the fields `seen`, the units left
#: before it, and `order`, the order as JSON.
UNREADABLE_ENTRIES: list[dict[str, Any]] = [
    {"seen": 3, "order": "{"},  # not JSON
    {"seen": "many", "order": "{}"},  # not a number
    {"seen": 3, "order": '{"of": "a newer node"}'},  # an unknown field
    {"other": "fields"},
]


def test_unreadable_stream_entry_is_moved_to_the_broken_stream() -> None:
    """Stream entries that are not promises are moved to the stream of broken promises.

    All other promises are settled, and the shop continues to sell.
    """
    client: Any = locks_client()
    sale = open_sale(5)
    promise_orders("a")
    for fields in UNREADABLE_ENTRIES:
        client.xadd(STREAM, {"sale": sale.pk, **fields})
        client.xadd(STREAM, fields)  # without the number of a sale
    promise_orders("b")
    unreadable_count = len(UNREADABLE_ENTRIES)
    # settled, broken, unsettled; an entry without the number of a sale is not counted
    assert read_settlement(sale) == (0, 0, 2 + unreadable_count)
    settle_all_promises()
    assert (count_orders_and_stock(), count_unsettled()) == ((2, 3), 0)
    assert read_settlement(sale) == (2, unreadable_count, 0)
    broken_entries = [fields for _, fields in client.xrange(BROKEN_STREAM)]
    entries_of_sale = broken_entries[::2]  # every other entry has no number of a sale
    for broken_entry, fields in zip(entries_of_sale, UNREADABLE_ENTRIES, strict=True):
        assert {name.decode() for name in broken_entry} >= fields.keys()
    assert buy_reserved(key="c").status == 201


def test_promise_with_an_invalid_order_is_broken() -> None:
    """The name of one buyer contains a NUL character, which PostgreSQL cannot store.

    Only this promise is broken. The other three promises of the batch are settled.
    """
    sale = open_sale(5)
    promise_orders("a", "b")
    client: Any = locks_client()
    ((_, entry),) = client.xrange(STREAM, count=1)
    invalid_order = json.loads(entry[b"order"]) | {"order": 10**9, "key": "w", "buyer": "w\0"}
    units_seen = 3  # after the units for "a" and "b", 3 of 5 are left
    client.xadd(STREAM, {"sale": sale.pk, "seen": units_seen, "order": json.dumps(invalid_order)})
    promise_orders("c")
    settle_all_promises()
    assert (count_orders_and_stock(), count_unsettled()) == ((3, 2), 0)
    assert read_settlement(sale) == (3, 1, 0)
