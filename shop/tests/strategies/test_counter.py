"""The strategy `counter`: Redis counts the free units of a sale, PostgreSQL records the orders.

A buyer reserves a unit in Redis, and then writes the order. The tests check the Redis scripts, a
COMMIT whose outcome is unknown, and a counter that Redis has lost. A crash between the reservation
and the order is tested by the load test's fault `crash`.
"""

from functools import partial
from typing import Any

import pytest
import redis

from shop.ops.redis import locks_client
from shop.sale.points import use_probe
from shop.schedules.interleaving import Interleaving
from shop.strategies.counter import (
    COUNTER_LIFETIME_MS,
    ReservationOutcome,
    cancel_reservation,
    counter_keys,
    reserve,
)
from shop.tests.database import kill_this_threads_backend
from shop.tests.outage import Outage
from shop.tests.purchases import buy, committed, count_orders_and_stock, make_probe, open_sale

#: The numbers of two sales that have no row in the database: the scripts use only Redis.
SALE = 7
OTHER_SALE = 8
COUNTER_KEY, RESERVATIONS_KEY = counter_keys(SALE)
#: A test takes less than a minute, so no ttl falls by more than this during a test.
MINUTE_MS = 60_000

buy_by_counter = partial(buy, lock="counter")


def read_counter(sale: int = SALE) -> tuple[int | None, set[bytes]]:
    """Return what Redis has of a sale: the number of free units, and the ids of the reservations.

    The number is None if Redis has no counter for the sale.
    """
    counter_key, reservations_key = counter_keys(sale)
    client: Any = locks_client()
    free_units = client.get(counter_key)
    return None if free_units is None else int(free_units), client.smembers(reservations_key)


@pytest.mark.parametrize(
    ("reservation_id", "initial_units", "outcome"),
    [
        ("a", 1, ReservationOutcome.MADE_EARLIER),
        ("b", 1, ReservationOutcome.SOLD_OUT),
        ("b", 2, ReservationOutcome.MADE_NOW),
    ],
)
def test_every_reservation_renews_the_ttl_of_both_keys(
    reservation_id: str, initial_units: int, outcome: ReservationOutcome
) -> None:
    """The counter and the set of reservations expire a day after the last call of reserve().

    Before the tested call, the reservation `a` has already taken one unit.

    initial_units  the units of the sale
    outcome        the expected outcome of the call with `reservation_id`
    """
    reserve(sale_id=SALE, reservation_id="a", initial_units=initial_units)
    client: Any = locks_client()
    for key in (COUNTER_KEY, RESERVATIONS_KEY):
        client.pexpire(key, MINUTE_MS)
    # This call does not use its `initial_units`, because the sale already has a counter.
    actual_outcome, _ = reserve(sale_id=SALE, reservation_id=reservation_id, initial_units=1)
    assert actual_outcome is outcome
    for key in (COUNTER_KEY, RESERVATIONS_KEY):
        assert COUNTER_LIFETIME_MS - MINUTE_MS < client.pttl(key) <= COUNTER_LIFETIME_MS


def test_reservation_is_cancelled_only_once() -> None:
    """A second cancellation, or one of an unknown reservation, does not increment the counter.

    The reservations of another sale do not count. If Redis has lost the counter, the reservation is
    removed, but no counter is created: INCR would create it without a ttl.
    """
    reserve(sale_id=SALE, reservation_id="a", initial_units=2)
    reservation_of_other_sale = reserve(sale_id=OTHER_SALE, reservation_id="a", initial_units=5)
    assert reservation_of_other_sale == (ReservationOutcome.MADE_NOW, 4)
    cancel_reservation(sale_id=SALE, reservation_id="b")  # no such reservation
    assert read_counter() == (1, {b"a"})
    for _ in range(2):
        cancel_reservation(sale_id=SALE, reservation_id="a")
    assert read_counter() == (2, set())
    reserve(sale_id=SALE, reservation_id="a", initial_units=2)
    locks_client().delete(COUNTER_KEY)
    cancel_reservation(sale_id=SALE, reservation_id="a")
    assert read_counter() == (None, set())


def test_cancellation_during_a_redis_outage_is_logged(
    redis_outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    """cancel_reservation() does not raise, because it is called after a purchase has failed.

    An exception would replace the error of the purchase, which the buyer is to get.
    """
    reserve(sale_id=SALE, reservation_id="a", initial_units=1)
    redis_outage.begin()
    cancel_reservation(sale_id=SALE, reservation_id="a")
    assert "a unit stays reserved until the next restock" in caplog.text
    with pytest.raises(redis.RedisError):  # reserve() does raise
        reserve(sale_id=SALE, reservation_id="b", initial_units=1)


# --- purchases ----------------------------------------------------------------------------------


@committed
def test_unit_stays_reserved_after_an_unknown_commit() -> None:
    """The purchase with the key `k1` loses its connection at the COMMIT, so its order may exist.

    No other key gets the reserved unit, and a retry with `k1` uses it. Here the order does not
    exist, so the retry writes it.
    """
    sale = open_sale(1)
    with use_probe(make_probe("before_commit", kill_this_threads_backend)):
        assert buy_by_counter(key="k1").body["outcome"] == "unknown"
    assert read_counter(sale.pk) == (0, {b"k1"}), "the reservation should be kept"
    assert buy_by_counter(key="k2").status == 409, "another key should not get the unit"
    retry = buy_by_counter(key="k1")
    assert (retry.status, retry.body["replayed"]) == (201, False)
    assert count_orders_and_stock() == (1, 0)


@committed
def test_check_constraint_prevents_overselling_by_a_wrong_counter() -> None:
    """Redis loses the sale's counter after buyer A has reserved the only unit.

    A's order is not written yet, so the new counter lets buyer B reserve the same unit. Then A's
    order is written, and the CHECK of PostgreSQL (stock >= 0) refuses B's order.
    """
    open_sale(1)
    with Interleaving() as threads:
        a = threads.start("A", partial(buy_by_counter, buyer="A")).run_to("reserved")
        locks_client().flushdb()
        b = threads.start("B", partial(buy_by_counter, buyer="B")).run_to("reserved")
        assert a.finish().status == 201
        assert b.finish().status == 409
    assert count_orders_and_stock() == (1, 0)
