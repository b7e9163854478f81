"""Rules for POST /buy that hold under every strategy of the registry.

The fixture `lock` is the name of a strategy: a test with it runs once for every strategy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from pytest_django import Settings

from shop.ops.redis import locks_client
from shop.sale import opening, waiting_room
from shop.sale.points import use_probe
from shop.sale.purchase import Attempt
from shop.schedules.interleaving import Interleaving
from shop.strategies import STRATEGIES, process, zookeeper
from shop.tests.database import (
    CommitReplyDropper,
    connect_django_to,
    has_waiting_statement,
    kill_this_threads_backend,
)
from shop.tests.outage import Outage
from shop.tests.purchases import (
    APPLE,
    LOCK_SERVER_ERROR,
    assert_retry_later,
    buy,
    committed,
    count_orders_and_stock,
    eventually,
    make_probe,
    open_sale,
)

pytestmark = committed

UNKNOWN_COMMIT_ERROR = (
    "The connection broke during the commit; the order may exist. Retry with the same key."
)


def skip_without_commit(lock: str) -> None:
    """Skip the test if a purchase under this strategy does not end with a COMMIT in PostgreSQL."""
    if STRATEGIES[lock].deferred:
        pytest.skip("a purchase is a script in Redis; test_settlement.py tests the later COMMIT")
    skip_without_transaction(lock)


def skip_without_transaction(lock: str) -> None:
    """Skip the test if the writes of a purchase under this strategy are not one transaction."""
    if not STRATEGIES[lock].has_transaction:
        pytest.skip("each write is committed by itself; see test_autocommit.py")


@contextmanager
def shorten_timeouts(settings: Settings) -> Iterator[None]:
    """In the block, limit each wait of this thread for a lock or a row to 20 ms."""
    settings.SHOP_LOCK_WAIT = 0.02
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '20ms'")
    try:
        yield
    finally:
        connection.close()


def test_each_key_gets_one_order_until_sold_out(lock: str) -> None:
    """Three units are sold to three Idempotency-Keys, and the fourth key is refused.

    A repeated request with a key that has an order is answered with this order (200).
    """
    skip_without_transaction(lock)
    open_sale(3, lock=lock)
    keys = ("k1", "k1", "k2", "k3", "k4", "k1", "k3")
    replies = [buy(lock=lock, key=key) for key in keys]
    assert [reply.status for reply in replies] == [201, 200, 201, 201, 409, 200, 200]
    assert [reply.body["stock_seen"] for reply in replies if reply.status == 201] == [3, 2, 1]
    sold_replies = [reply for reply in replies if reply.status < 300]
    assert {reply.body["lock"]["name"] for reply in sold_replies} == {lock}
    sold_keys = [key for key in keys if key != "k4"]
    keys_and_orders = {
        (key, reply.body["order"]) for key, reply in zip(sold_keys, sold_replies, strict=True)
    }
    assert len(keys_and_orders) == 3, "each of the three keys should have one order"
    assert len({order for _, order in keys_and_orders}) == 3, "the orders should be different"
    refusal = replies[keys.index("k4")]
    assert refusal.body == {"outcome": "sold_out", "error": "No unit is left."}
    assert "Retry-After" not in refusal.headers
    assert count_orders_and_stock() == (3, 0)


# --- refusals -----------------------------------------------------------------------------------


def test_only_strategies_without_redis_sell_during_its_outage(
    lock: str, redis_outage: Outage
) -> None:
    """Strategies with another backend sell, all others refuse the buyer until the outage ends."""
    open_sale(1, lock=lock)
    redis_outage.begin()
    reply = buy(lock=lock, key="k1")
    if STRATEGIES[lock].backend != "redis":
        assert (reply.status, count_orders_and_stock()) == (201, (1, 0))
        return
    assert_retry_later(reply, "unavailable", LOCK_SERVER_ERROR)
    assert count_orders_and_stock() == (0, 1)
    redis_outage.end()
    assert buy(lock=lock, key="k1").status == 201, "the same key should buy after the outage"


def test_connection_lost_before_the_write_is_503_unavailable(lock: str) -> None:
    """PostgreSQL ends the buyer's connection after the read of the stock."""
    skip_without_commit(lock)
    open_sale(1, lock=lock)
    with use_probe(make_probe("after_read", kill_this_threads_backend)):
        reply = buy(lock=lock)
    assert_retry_later(
        reply,
        "unavailable",
        "the database does not answer; nothing was sold: retry with the same key",
    )
    assert (count_orders_and_stock(), waiting_room.purchases_under_way) == ((0, 1), {})
    assert buy(lock=lock).status == 201, "the lock was released"


def test_lost_commit_reply_is_503_unknown(lock: str) -> None:
    """If the reply to the COMMIT is lost, the shop does not know whether the order exists.

    A retry with the same Idempotency-Key is answered with the order, and buys no second unit.
    """
    skip_without_commit(lock)
    open_sale(2, lock=lock)
    with CommitReplyDropper() as proxy, connect_django_to(proxy.folder):
        reply = buy(lock=lock, key="k1")
    assert proxy.has_lost_reply, "the reply to a COMMIT should have been lost"
    assert_retry_later(reply, "unknown", UNKNOWN_COMMIT_ERROR)
    assert count_orders_and_stock() == (1, 1)
    retry = buy(lock=lock, key="k1")
    assert (retry.status, retry.body["replayed"]) == (200, True)
    assert buy(lock=lock).status == 201, "without a key the buyer should get another unit"
    assert count_orders_and_stock() == (2, 0)


def test_expired_wait_is_busy_and_sells_nothing(lock: str, settings: Settings) -> None:
    """`bob` is stopped before his commit, and holds the lock or a row, for which `ada` waits.

    Under a strategy that sells from many rows only one unit is on sale, so both need the same row.
    """
    skip_without_commit(lock)
    units = 1 if STRATEGIES[lock].fill_own_rows is not None else 2
    open_sale(units, lock=lock)
    with Interleaving() as threads:
        bob = threads.start("bob", partial(buy, lock=lock, buyer="bob"))
        bob.run_to("before_commit")
        with shorten_timeouts(settings):
            reply = buy(lock=lock, buyer="ada", key="k1")
        bobs_reply = bob.finish()
    assert (reply.status, reply.body["outcome"]) == (503, "busy")
    assert reply.headers["Retry-After"] == "1"
    assert "nothing was sold" in reply.body["error"]
    assert bobs_reply.status == 201
    assert count_orders_and_stock() == (1, units - 1)
    retry_status = buy(lock=lock, buyer="ada", key="k1").status
    assert retry_status == (201 if units > 1 else 409), "the same key should buy if a unit is left"


def test_unknown_product_leaves_no_state(lock: str, settings: Settings) -> None:
    """A purchase of an unknown product creates no lock, mutex or ZooKeeper node for the product.

    The only new key in Redis is the rate limiter's count for the visitor's address.
    """
    settings.BUY_RATE_LIMIT = (100, 10.0)
    mutex_count = len(process._locks)  # the strategy `process` has a mutex for each product
    assert buy(lock=lock, product=f"invented-{lock}").status == 404
    client: Any = locks_client()
    assert client.keys("*") == [b"throttle:127.0.0.1"]
    assert len(process._locks) == mutex_count
    if lock == "zookeeper" and zookeeper._connect_once.cache_info().currsize:
        names = zookeeper.zookeeper_client().get_children("/locks")
        assert not [name for name in names if "invented" in name]


def test_purchase_inside_a_transaction_raises(lock: str) -> None:
    """If a caller has opened a transaction, a purchase in it is refused.

    The caller's transaction would be committed only after the strategy has released its lock.
    """
    skip_without_transaction(lock)
    open_sale(1, lock=lock)
    attempt = Attempt(product=APPLE, buyer="ada", lock=lock)
    with (
        transaction.atomic(),
        pytest.raises(RuntimeError, match=r"inside a transaction|durable .* cannot be nested"),
    ):
        STRATEGIES[lock].buy(attempt)
    assert count_orders_and_stock() == (0, 1)
    assert buy(lock=lock).status == 201, "the lock is free"


# --- the sale of the request --------------------------------------------------------------------


def test_buyer_of_a_closed_sale_gets_no_unit_of_the_next(lock: str) -> None:
    """A request may contain the number of a sale. After the close of that sale it is refused (410).

    But a key that has an order in the closed sale is answered with this order.
    """
    closed_sale = open_sale(5, lock=lock)
    early_reply = buy(lock=lock, key="early", sale=closed_sale.pk)
    next_sale = open_sale(7, lock=lock)
    repeated_reply = buy(lock=lock, key="early", sale=closed_sale.pk)
    assert repeated_reply.status == 200
    assert repeated_reply.body == {**early_reply.body, "replayed": True, "lock": {"name": lock}}
    late_reply = buy(lock=lock, key="late", sale=closed_sale.pk)
    assert (late_reply.status, late_reply.body["outcome"]) == (410, "closed")
    assert "Retry-After" not in late_reply.headers
    assert locks_client().keys(f"*{{{next_sale.pk}}}*") == [], (
        "no unit of the next sale should be reserved"
    )
    assert count_orders_and_stock() == (1, 7)
    reply = buy(lock=lock, key="in-time", sale=next_sale.pk)
    assert (reply.status, reply.body["sale"]) == (201, next_sale.pk)


def test_restock_during_a_purchase_keeps_both_sales_exact(lock: str) -> None:
    """A restock closes the sale and opens a new one between the read and the write of a buyer.

    The buyer gets a unit of the old sale if the strategy locks a row at the read (`holds_row`), or
    sells in Redis and writes the order later (`deferred`). The buyer gets a unit of the new sale if
    the strategy then tries again (`reads_again`). Otherwise the buyer is refused.
    """
    old_sale = open_sale(3, lock=lock)
    with Interleaving() as threads:
        # A purchase under a deferred strategy reads no stock in the database.
        read_point = "reserved" if STRATEGIES[lock].deferred else "after_read"
        buyer = threads.start("buyer", partial(buy, lock=lock)).run_to(read_point)
        restock_thread = threads.start(
            "restock", partial(opening.restock, product=APPLE, amount=50, lock=lock)
        )
        eventually(
            lambda: not restock_thread.is_between_steps() or has_waiting_statement(),
            what="the restock has ended, or waits for the buyer",
        )
        # A restock has no point to stop at. If it has not ended, it waits for the buyer's row lock.
        has_to_wait = restock_thread.is_between_steps()
        assert has_to_wait == STRATEGIES[lock].holds_row
        reply = buyer.finish()
        new_sale = restock_thread.finish()
    # Under `reserve` this writes the orders that Redis has promised, before the orders are counted.
    count_orders_and_stock()
    old_sale.refresh_from_db()
    orders_of_old = old_sale.orders.count()
    orders_of_new = new_sale.orders.count()
    assert old_sale.final_stock == 3 - orders_of_old
    assert count_orders_and_stock() == (orders_of_old + orders_of_new, 50 - orders_of_new)
    if STRATEGIES[lock].holds_row or STRATEGIES[lock].deferred:
        assert (reply.status, orders_of_old) == (201, 1)
    elif STRATEGIES[lock].reads_again:
        assert (reply.status, orders_of_new) == (201, 1)
    else:
        assert (reply.status, reply.body["outcome"]) == (503, "lost")
        assert "the sale was closed" in reply.body["error"].lower()


# --- missing servers ----------------------------------------------------------------------------


@pytest.mark.parametrize("lock", ["redlock", "zookeeper"])
def test_strategy_without_its_servers_is_unavailable(lock: str, settings: Settings) -> None:
    """The error message contains the name of the setting that is empty."""
    open_sale(1)
    required_setting = STRATEGIES[lock].needs
    empty_value = type(getattr(settings, required_setting))()  # an empty list or string
    setattr(settings, required_setting, empty_value)
    reply = buy(lock=lock)
    assert (reply.status, reply.body["outcome"]) == (503, "unavailable")
    assert f"set {required_setting}" in reply.body["error"]
    assert count_orders_and_stock() == (0, 1)
