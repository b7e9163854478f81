"""What a buyer may count on whatever the strategy, for all of the registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from django.db import connection
from pytest_django import Settings

from servers.embedded import Valkey
from servers.loopback import free_port
from shop.demo.interleaving import Interleaving
from shop.models import PurchaseHistory
from shop.sale import stock
from shop.strategies import STRATEGIES, redlock, zookeeper
from shop.tests.database import somebody_waits_for_a_row
from shop.tests.outage import Outage
from shop.tests.till import (
    APPLE,
    ask,
    assert_asks_to_come_back,
    books,
    buy,
    committed,
    eventually,
    open_sale,
)

pytestmark = committed

#: Those that sell on while the Redis of the locks is down.
NEED_NO_REDIS = {
    *("none", "process", "redlock", "zookeeper"),
    *("advisory", "row-lock", "version", "rollback", "conditional", "serializable"),
    *("buckets", "skip-locked"),
}
#: Those that hold the product's row, or a unit's, from the read on: a restock waits for the buyer.
KEEP_THE_ROW = {"redis", "one-file", "row-lock", "skip-locked"}
#: Those under which two buyers do not wait for each other while there are units for both.
SIDE_BY_SIDE = {"buckets", "skip-locked"}
#: Those that notice the restock and read again: the unit is sold out of the new sale.
READ_AGAIN = {"version", "serializable", "buckets"}
SERVER_IS_DOWN = "the lock's server does not answer; nothing was sold"


@contextmanager
def short_timeouts(settings: Settings) -> Iterator[None]:
    """Neither a lock nor the database is waited for longer than 20 ms, in this thread."""
    settings.SHOP_LOCK_WAIT = 0.02
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '20ms'")
    try:
        yield
    finally:
        connection.close()


# --- sold, sold out -----------------------------------------------------------------------------


def test_buyers_who_come_one_after_another_get_exactly_what_there_is(lock: str) -> None:
    open_sale(3)
    answers = [buy(lock=lock, buyer=f"b{number}") for number in range(5)]
    assert [answer.status for answer in answers] == [201, 201, 201, 409, 409]
    assert [answer.body.get("stock_seen") for answer in answers] == [3, 2, 1, None, None]
    assert {answer.body["lock"]["name"] for answer in answers[:3]} == {lock}
    assert {answer.body["outcome"] for answer in answers[3:]} == {"sold_out"}
    assert books() == (3, 0)


def test_a_key_that_has_bought_gets_its_order_again_also_when_all_is_sold(lock: str) -> None:
    open_sale(2)
    first, again = buy(lock=lock, key="k1"), buy(lock=lock, key="k1")
    last = buy(lock=lock, key="k2")
    after_the_last = [buy(lock=lock, key=key) for key in ("k1", "k2", "k3")]
    assert [first.status, again.status, last.status] == [201, 200, 201]
    assert [answer.status for answer in after_the_last] == [200, 200, 409]
    assert first.body["order"] == again.body["order"] == after_the_last[0].body["order"]
    assert after_the_last[1].body["order"] == last.body["order"]
    assert books() == (2, 0)


# --- refusals -----------------------------------------------------------------------------------


def test_without_redis_nothing_is_sold_unlocked_and_who_needs_none_sells_on(
    lock: str, redis_outage: Outage
) -> None:
    open_sale(1)
    redis_outage.begin()
    answer = buy(lock=lock, key="k1")
    if lock in NEED_NO_REDIS:
        assert (answer.status, books()) == (201, (1, 0))
        return
    assert_asks_to_come_back(answer, "unavailable", SERVER_IS_DOWN)
    assert books() == (0, 1)
    redis_outage.end()
    assert buy(lock=lock, key="k1").status == 201, "and it is asked again when it is back"


def test_the_strategies_that_need_no_redis_are_in_the_registry() -> None:
    assert set(STRATEGIES) >= NEED_NO_REDIS | KEEP_THE_ROW | READ_AGAIN | SIDE_BY_SIDE


def test_a_wait_that_is_over_while_another_buys_is_busy_and_sells_nothing(
    lock: str, settings: Settings
) -> None:
    """The other is between its write and its commit: its lock is held, or its row is. Where rows
    are many it has the last one."""
    if STRATEGIES[lock].deferred:
        pytest.skip("nobody waits for another buyer here; see test_reserve.py")
    units = 1 if lock in SIDE_BY_SIDE else 2
    open_sale(units)
    with Interleaving() as threads:
        other = threads.enter("other", partial(buy, lock=lock, buyer="bob"))
        other.runs_to("before_commit")
        with short_timeouts(settings):
            answer = buy(lock=lock, buyer="ada", key="k1")
        other_got = other.finishes()
    assert (answer.status, answer.body["outcome"]) == (503, "busy")
    assert answer.headers["Retry-After"] == "1"
    assert "nothing was sold" in answer.body["error"]
    assert other_got.status == 201
    assert books() == (1, units - 1)
    later = buy(lock=lock, buyer="ada", key="k1").status
    assert later == (201 if units > 1 else 409), "the same key buys later, or is refused for good"


def test_bad_input_is_400_says_what_is_allowed_and_sells_nothing(lock: str) -> None:
    open_sale(1)
    for wrong, error in (
        ({"buyer": ""}, "buyer is missing: say who buys"),
        ({"hold_ms": -1}, "bad hold_ms: -1"),
        ({"product": "no such thing"}, "bad product name"),
        ({"colour": "red"}, "unknown parameter: colour"),
    ):
        answer = ask({"lock": lock, "buyer": "ada", **wrong})
        assert (answer.status, answer.body["outcome"]) == (400, "error")
        assert answer.body["error"] == error
        assert answer.body["allowed"]
    assert books() == (0, 1)


def test_an_unknown_product_is_404_and_leaves_no_lock_behind(lock: str, settings: Settings) -> None:
    settings.SHOP_LOCK_WAIT = 0.02
    for _ in range(2):  # a lock left behind would make the second one busy
        answer = buy(lock=lock, product="pear")
        assert answer.status == 404
        assert answer.body["outcome"] == "error"
    assert PurchaseHistory.objects.count() == 0


def test_a_restock_between_read_and_write_never_sells_a_unit_of_the_wrong_sale(lock: str) -> None:
    old = open_sale(3)
    with Interleaving() as threads:
        place = "reserved" if STRATEGIES[lock].deferred else "after_read"
        late = threads.enter("late", partial(buy, lock=lock)).runs_to(place)
        clerk = threads.enter("clerk", partial(stock.restock, product=APPLE, amount=50))
        eventually(
            lambda: not clerk.is_between_points() or somebody_waits_for_a_row(),
            what="the sale is closed, or the clerk waits for the buyer",
        )
        assert clerk.is_between_points() == (lock in KEEP_THE_ROW)
        answer = late.finishes()
        new = clerk.finishes()
    books()
    old.refresh_from_db()
    in_old, in_new = old.orders.count(), new.orders.count()
    assert old.final_stock == 3 - in_old
    assert books() == (in_old + in_new, 50 - in_new)
    if lock in KEEP_THE_ROW or STRATEGIES[lock].deferred:
        assert (answer.status, in_old) == (201, 1)
    elif lock in READ_AGAIN:
        assert (answer.status, in_new) == (201, 1)
    else:
        assert (answer.status, answer.body["outcome"]) == (503, "lost")
        assert "the sale was closed" in answer.body["error"].lower()


# --- a part that is missing ---------------------------------------------------------------------


@pytest.mark.parametrize("lock", ["redlock", "zookeeper"])
def test_a_strategy_whose_servers_nobody_named_is_unavailable_and_says_what_to_set(
    lock: str, settings: Settings
) -> None:
    open_sale(1)
    needs = STRATEGIES[lock].needs
    setattr(settings, needs, type(getattr(settings, needs))())
    answer = buy(lock=lock)
    assert (answer.status, answer.body["outcome"]) == (503, "unavailable")
    assert f"set {needs}" in answer.body["error"]
    assert books() == (0, 1)


@pytest.mark.parametrize("down", [2, 3])
def test_redlock_sells_on_with_three_of_five_servers_and_is_unavailable_with_two(
    down: int, redlock_urls: None, five_valkeys: list[Valkey]
) -> None:
    open_sale(1)
    outages = [Outage(server) for server in five_valkeys[:down]]
    try:
        for outage in outages:
            outage.begin()
        answer = buy(lock="redlock")
    finally:
        for outage in outages:
            outage.end()
    if down == 2:
        assert (answer.status, books()) == (201, (1, 0))
    else:
        assert_asks_to_come_back(answer, "unavailable", SERVER_IS_DOWN)
        assert books() == (0, 1)
        assert sum(client.dbsize() for client in redlock.clients()) == 0, "no vote is left"


def test_a_zookeeper_that_nobody_serves_is_unavailable(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_sale(1)
    settings.ZOOKEEPER_HOSTS = f"127.0.0.1:{free_port()}"
    monkeypatch.setattr(zookeeper, "CONNECT_TIMEOUT", 0.1)
    monkeypatch.setattr(zookeeper, "_connected", zookeeper._connected.__wrapped__)
    assert_asks_to_come_back(buy(lock="zookeeper"), "unavailable", SERVER_IS_DOWN)
    assert books() == (0, 1)


def test_a_rush_on_a_zookeeper_that_nobody_serves_does_not_queue_for_each_others_timeout(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 buyers who try one after another would be answered after a quarter of an hour."""
    open_sale(1)
    settings.ZOOKEEPER_HOSTS = f"127.0.0.1:{free_port()}"
    monkeypatch.setattr(zookeeper, "CONNECT_TIMEOUT", 0.05)
    with zookeeper._connecting:  # another buyer is at it
        answer = buy(lock="zookeeper")
    assert_asks_to_come_back(answer, "unavailable", "ZooKeeper does not answer; nothing was sold")
