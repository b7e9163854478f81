"""The counter in Redis: its scripts, an unknown commit and a lost counter.

The fault `crash` of the load test shows a crash.
"""

from functools import partial
from typing import Any

import pytest
import redis

from shop.ops.redis import locks_client
from shop.sale.points import installed
from shop.schedules.interleaving import Interleaving
from shop.strategies.counter import COUNTER_LIFETIME_MS, counter_keys, give_back, reserve
from shop.tests.database import kill_this_threads_backend
from shop.tests.outage import Outage
from shop.tests.purchases import buy, committed, count_orders_and_stock, make_probe, open_sale

SALE = 7
COUNT, HELD = counter_keys(SALE)

buy_by_counter = partial(buy, lock="counter")


def read_counter(sale: int = SALE) -> tuple[int | None, set[bytes]]:
    """Return the number of free units of a sale, and the holders of its reserved units."""
    count, held = counter_keys(sale)
    client: Any = locks_client()
    free_units = client.get(count)
    return None if free_units is None else int(free_units), client.smembers(held)


@pytest.mark.parametrize("holder", ["a", "b", "c"], ids=["held already", "sold out", "reserved"])
def test_keys_expire_a_day_after_their_last_use(holder: str) -> None:
    """Every answer of the script renews both."""
    reserve(sale_id=SALE, reservation_id="a", initial_units=2 if holder == "c" else 1)
    client: Any = locks_client()
    for key in (COUNT, HELD):
        client.pexpire(key, 60_000)
    reserve(sale_id=SALE, reservation_id=holder, initial_units=1)
    assert all(
        COUNTER_LIFETIME_MS - 60_000 < client.pttl(key) <= COUNTER_LIFETIME_MS
        for key in (COUNT, HELD)
    )


def test_unit_is_given_back_once() -> None:
    """A lost counter stays lost: INCR would create one of a single unit, and without a ttl."""
    reserve(sale_id=SALE, reservation_id="a", initial_units=2)
    assert reserve(sale_id=8, reservation_id="a", initial_units=5) == (1, 4), (
        "another sale has another counter"
    )
    give_back(sale_id=SALE, reservation_id="b")
    assert read_counter() == (1, {b"a"})
    for _ in range(2):
        give_back(sale_id=SALE, reservation_id="a")
    assert read_counter() == (2, set())
    reserve(sale_id=SALE, reservation_id="a", initial_units=2)
    locks_client().delete(COUNT)
    give_back(sale_id=SALE, reservation_id="a")
    assert read_counter() == (None, set())


def test_silent_redis_keeps_the_unit(
    redis_outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    """give_back() only logs the outage, so that the buyer gets the error of the purchase."""
    reserve(sale_id=SALE, reservation_id="a", initial_units=1)
    redis_outage.begin()
    give_back(sale_id=SALE, reservation_id="a")
    assert "a unit stays reserved until the next restock" in caplog.text
    with pytest.raises(redis.RedisError):
        reserve(sale_id=SALE, reservation_id="b", initial_units=1)


# --- purchases ----------------------------------------------------------------------------------


@committed
def test_unknown_commit_keeps_the_unit_for_its_key() -> None:
    sale = open_sale(1)
    with installed(make_probe("before_commit", kill_this_threads_backend)):
        assert buy_by_counter(key="k1").body["outcome"] == "unknown"
    assert read_counter(sale.pk) == (0, {b"k1"}), "the order may exist"
    assert buy_by_counter(key="k2").status == 409, "no other buyer gets this unit"
    again = buy_by_counter(key="k1")
    assert (again.status, again.body["replayed"]) == (201, False)
    assert count_orders_and_stock() == (1, 0)


@committed
def test_check_constraint_stops_a_counter_that_is_too_high() -> None:
    """Redis loses the counter while A has a unit but no order; the new one counts it again."""
    open_sale(1)
    with Interleaving() as threads:
        a = threads.enter("A", partial(buy_by_counter, buyer="A")).run_to("reserved")
        locks_client().flushdb()
        b = threads.enter("B", partial(buy_by_counter, buyer="B")).run_to("reserved")
        assert a.finish().status == 201
        assert b.finish().status == 409
    assert count_orders_and_stock() == (1, 0)
