"""Settling: what is committed and not acknowledged, taken over, or settled twice is one order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings as live
from django.db import DatabaseError, InterfaceError, connection

from shop.models import Product, PurchaseHistory, Sale
from shop.ops.redis import locks_client
from shop.reserve import consumer
from shop.reserve.consumer import acknowledge
from shop.reserve.promises import BROKEN, STREAM, attempt_key, promised
from shop.reserve.settle import Ending, settle
from shop.sale.points import installed
from shop.sale.reports import sale_report
from shop.tests.database import (
    ReplyCutter,
    database_at,
    kill_this_threads_backend,
    somebody_waits_for_a_row,
)
from shop.tests.till import (
    APPLE,
    at,
    books,
    buy,
    committed,
    eventually,
    open_sale,
    sell_reserved,
    settle_all,
)

pytestmark = committed

buy_reserved = partial(buy, lock="reserve")


def waiting() -> int:
    return int(locks_client().xlen(STREAM))


def settlement(sale: Sale) -> tuple[int, int, int]:
    """Promises of a sale that are settled, broken and unsettled."""
    report = sale_report(sale.pk).as_dict()
    return report["settled"], report["broken_promises"], report["unsettled"]


def add(fields: dict[str, Any]) -> None:
    client: Any = locks_client()
    client.xadd(STREAM, fields)


def crash() -> None:
    raise KeyboardInterrupt


def database_url() -> str:
    database = urlsplit(os.environ["DATABASE_URL"])
    return database._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


@contextmanager
def process_of_its_own() -> Iterator[subprocess.Popen[bytes]]:
    """`manage.py settle`, on this test's database and Redis."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "settle"],
        cwd=live.BASE_DIR,
        env={
            **os.environ,
            "DATABASE_URL": database_url(),
            "SHOP_DB_POOL": "1",
            "SHOP_DEMO": "1",
        },
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_consumer_that_crashes_between_commit_and_xdel_leaves_no_order_twice() -> None:
    open_sale(5)
    sell_reserved("a", "b", "c")
    with installed(at("settled", crash)), pytest.raises(KeyboardInterrupt):
        settle_all()
    assert (PurchaseHistory.objects.count(), waiting()) == (3, 3), "committed, not acknowledged"
    consumer.step()
    assert (books(), waiting()) == ((3, 2), 0)


def test_a_consumer_that_is_killed_in_its_batch_is_followed_by_another_one() -> None:
    sale = open_sale(5)
    sell_reserved("a", "b", "c")
    with psycopg.connect(database_url()) as holder, process_of_its_own() as first:
        holder.execute("SELECT 1 FROM product WHERE id = %s FOR UPDATE", [sale.product_id])
        eventually(somebody_waits_for_a_row, what="it is in its batch")
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert PurchaseHistory.objects.count() == 0
    eventually(lambda: consumer.step() or not waiting(), what="another takes over")
    assert (books(), waiting()) == ((3, 2), 0)


def test_sigterm_ends_a_consumer_with_0_and_nothing_of_it_is_left() -> None:
    open_sale(2)
    sell_reserved("a")
    with process_of_its_own() as process:
        eventually(lambda: not waiting(), what="it settles")
        process.terminate()
        assert process.wait(20) == 0
    assert books() == (1, 1)


def test_settling_twice_and_acknowledging_twice_does_nothing() -> None:
    sale = open_sale(5)
    sell_reserved("a", "b")
    entries = promised(sale.pk)[1]
    for taken in (2, 0):
        endings = settle(entries)
        assert set(endings.values()) == {Ending.KEPT}
        ended = [(one.entry, one.sale, endings[one.entry]) for one in entries]
        assert acknowledge(ended) == taken
    assert books() == (2, 3)
    assert settlement(sale) == (2, 0, 0)


def test_a_commit_whose_reply_got_lost_is_settled_once_more_and_is_one_order() -> None:
    open_sale(3)
    sell_reserved("a", "b")
    with (
        ReplyCutter() as proxy,
        database_at(proxy.folder),
        pytest.raises((DatabaseError, InterfaceError)),
    ):
        settle_all()
    assert (proxy.cut, waiting()) == (1, 2)
    assert (books(), waiting()) == ((2, 1), 0)


def test_a_backend_that_is_killed_in_the_batch_loses_nothing() -> None:
    open_sale(3)
    sell_reserved("a", "b")
    with (
        installed(at("settling", kill_this_threads_backend)),
        pytest.raises((DatabaseError, InterfaceError)),
    ):
        settle_all()
    connection.close()
    assert (PurchaseHistory.objects.count(), waiting()) == (0, 2)
    assert (books(), waiting()) == ((2, 1), 0)


def test_a_key_that_another_strategy_sold_to_has_one_order_and_the_unit_is_free_again() -> None:
    sale = open_sale(3)
    sell_reserved("a")
    PurchaseHistory.objects.create(
        sale=sale, product_name=APPLE, purchaser="a", idempotency_key="a", lock="redis",
        fingerprint="other", stock_seen=3,
    )  # fmt: skip
    Product.objects.filter(name=APPLE).update(amount=2)
    settle_all()
    assert (books(), promised(sale.pk)[0]) == ((1, 2), 3 - 1 + 1)
    assert settlement(sale)[1] == 1


def test_who_was_promised_a_second_order_is_answered_with_the_first_once_it_is_settled() -> None:
    """The number of the first answer will never exist; from the settlement on nobody hears it."""
    sale = open_sale(3)
    bought = buy_reserved(key="a").body["order"]
    settle_all()
    locks_client().delete(attempt_key("a"))  # a day later
    assert buy_reserved(key="a").body["order"] != bought, "promised in vain"
    settle_all()
    assert settlement(sale)[1] == 1
    again = buy_reserved(key="a")
    assert (again.status, again.body["order"], again.body["replayed"]) == (200, bought, True)
    assert buy_reserved(key="a", buyer="bob").status == 422
    assert books() == (1, 2)


def test_a_number_that_is_another_buyers_is_a_broken_promise_and_not_taken_for_settled() -> None:
    """As after a database that went back in time and drew the number again."""
    sale = open_sale(3)
    sell_reserved("a")
    number = promised(sale.pk)[1][0].order
    PurchaseHistory.objects.create(
        pk=number, sale=sale, product_name=APPLE, purchaser="b", lock="redis", stock_seen=3
    )
    settle_all()
    assert PurchaseHistory.objects.get(pk=number).purchaser == "b"
    assert settlement(sale)[1] == 1


# --- the end of a consumer ------------------------------------------------------------------------

#: SIGTERM comes while stop.wait() has the lock of its event.
PROGRAM = """
import os, signal, time
import django
django.setup()
from django.core.management import call_command
from shop.reserve import consumer

def run(stop, alive):
    with stop._cond:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
    assert stop.wait(10)

consumer.run = run
call_command("settle")
"""


def test_sigterm_ends_it_also_while_it_waits_for_the_next_batch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=live.BASE_DIR,
        env={"DJANGO_SETTINGS_MODULE": "shop.settings"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr


# --- entries that cannot be settled ---------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"seen": 3, "order": "{"},
        {"seen": "many", "order": "{}"},
        {"seen": 3, "order": '{"of": "a newer node"}'},
        {"other": "fields"},
    ],
    ids=["no JSON", "no number", "an unknown field", "fields missing"],
)
def test_an_entry_that_nobody_can_read_is_set_aside_and_the_others_are_settled(
    fields: dict[str, Any],
) -> None:
    sale = open_sale(5)
    sell_reserved("a")
    add({"sale": sale.pk, **fields})
    add(fields)  # of nobody knows which sale
    sell_reserved("b")
    assert settlement(sale) == (0, 0, 3)
    settle_all()
    assert (books(), settlement(sale)) == ((2, 3), (2, 1, 0))
    client: Any = locks_client()
    assert client.xlen(STREAM) == 0
    for _, kept in client.xrange(BROKEN):
        assert {name.decode() for name in kept} >= fields.keys()
    assert buy_reserved(key="c").status == 201


def test_an_order_that_postgresql_refuses_is_a_broken_promise_and_the_others_are_settled() -> None:
    sale = open_sale(5)
    sell_reserved("a", "b")
    client: Any = locks_client()
    ((_, entry),) = client.xrange(STREAM, count=1)
    wrong = json.loads(entry[b"order"]) | {"order": 10**9, "key": "w", "buyer": "w\0"}
    add({"sale": sale.pk, "seen": 3, "order": json.dumps(wrong)})
    sell_reserved("c")
    settle_all()
    assert (books(), waiting(), settlement(sale)) == ((3, 2), 0, (3, 1, 0))


def test_promises_of_a_sale_that_was_deleted_are_broken_and_hold_nobody_up() -> None:
    gone = open_sale(5, product="pear")
    buy_reserved(key="p", product="pear")
    Product.objects.filter(name="pear").update(sale=None)
    gone.delete()
    open_sale(5)
    sell_reserved("a")
    settle_all()
    assert (books(APPLE), waiting()) == ((1, 4), 0)
