"""The counter in Redis: its scripts, an unknown commit and a lost counter.

No test is about a crash between the reservation in Redis and the order: the load test's fault
`crash` shows that.
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

SALE = 7
COUNT_KEY, RESERVATIONS_KEY = counter_keys(SALE)

buy_by_counter = partial(buy, lock="counter")


def read_counter(sale: int = SALE) -> tuple[int | None, set[bytes]]:
    """Return the number of free units of a sale, and the ids of its reservations.

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
def test_keys_expire_a_day_after_their_last_use(
    reservation_id: str, initial_units: int, outcome: ReservationOutcome
) -> None:
    """Every outcome of a reservation renews the ttl of both keys.

    initial_units  the units of the sale, one of which the reservation `a` has already taken
    """
    reserve(sale_id=SALE, reservation_id="a", initial_units=initial_units)
    client: Any = locks_client()
    for key in (COUNT_KEY, RESERVATIONS_KEY):
        client.pexpire(key, 60_000)
    actual_outcome, _ = reserve(sale_id=SALE, reservation_id=reservation_id, initial_units=1)
    assert actual_outcome is outcome
    for key in (COUNT_KEY, RESERVATIONS_KEY):
        assert COUNTER_LIFETIME_MS - 60_000 < client.pttl(key) <= COUNTER_LIFETIME_MS


def test_reservation_is_given_back_only_once() -> None:
    """The second return of a reservation, and the return of an unknown one, have no effect.

    If Redis has lost the counter, nothing is given back, because INCR would create a counter
    without a ttl.
    """
    reserve(sale_id=SALE, reservation_id="a", initial_units=2)
    reservation_of_other_sale = reserve(sale_id=8, reservation_id="a", initial_units=5)
    assert reservation_of_other_sale == (ReservationOutcome.MADE_NOW, 4)
    cancel_reservation(sale_id=SALE, reservation_id="b")
    assert read_counter() == (1, {b"a"})
    for _ in range(2):
        cancel_reservation(sale_id=SALE, reservation_id="a")
    assert read_counter() == (2, set())
    reserve(sale_id=SALE, reservation_id="a", initial_units=2)
    locks_client().delete(COUNT_KEY)
    cancel_reservation(sale_id=SALE, reservation_id="a")
    assert read_counter() == (None, set())


def test_unit_is_not_given_back_during_a_redis_outage(
    redis_outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    """cancel_reservation() logs the outage, so that the buyer gets the error of the purchase."""
    reserve(sale_id=SALE, reservation_id="a", initial_units=1)
    redis_outage.begin()
    cancel_reservation(sale_id=SALE, reservation_id="a")
    assert "a unit stays reserved until the next restock" in caplog.text
    with pytest.raises(redis.RedisError):
        reserve(sale_id=SALE, reservation_id="b", initial_units=1)


# --- purchases ----------------------------------------------------------------------------------


@committed
def test_unit_stays_reserved_after_an_unknown_commit() -> None:
    sale = open_sale(1)
    with use_probe(make_probe("before_commit", kill_this_threads_backend)):
        assert buy_by_counter(key="k1").body["outcome"] == "unknown"
    assert read_counter(sale.pk) == (0, {b"k1"}), "the reservation should be kept"
    assert buy_by_counter(key="k2").status == 409, "another key should not get the unit"
    again = buy_by_counter(key="k1")
    assert (again.status, again.body["replayed"]) == (201, False)
    assert count_orders_and_stock() == (1, 0)


@committed
def test_check_constraint_prevents_overselling_by_a_wrong_counter() -> None:
    """Redis loses its counter after A has reserved the only unit, and before A's order is written.

    The new counter lets B reserve the same unit. Only the CHECK of PostgreSQL refuses B.
    """
    open_sale(1)
    with Interleaving() as threads:
        a = threads.start("A", partial(buy_by_counter, buyer="A")).run_to("reserved")
        locks_client().flushdb()
        b = threads.start("B", partial(buy_by_counter, buyer="B")).run_to("reserved")
        assert a.finish().status == 201
        assert b.finish().status == 409
    assert count_orders_and_stock() == (1, 0)
