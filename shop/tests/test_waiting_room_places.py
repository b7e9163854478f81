"""The places of the waiting room: none is lost, and who is refused comes back later."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from shop.errors import Full
from shop.sale import checkout
from shop.sale.waiting_room import COME_BACK, LATEST, WaitingRoom, room
from shop.tests.outage import Outage
from shop.tests.till import APPLE, buy, committed, open_sale

WAITING = 2


def is_empty() -> bool:
    return not room._inside


def nothing_left() -> None:
    open_sale(0)
    assert buy().status == 409


def no_such_product() -> None:
    assert buy(product="invented").status == 404


def another_request_under_the_key() -> None:
    open_sale(5)
    assert buy(key="k2").status in (200, 201)
    assert buy(key="k2", buyer="bob").status == 422


@committed
@pytest.mark.parametrize("happens", [nothing_left, no_such_product, another_request_under_the_key])
def test_a_refused_purchase_leaves_its_place(
    happens: Callable[[], None], settings: Settings
) -> None:
    settings.SHOP_MAX_WAITING = WAITING
    for _ in range(WAITING + 2):  # one more than there are places
        happens()
        connection.close()
    assert is_empty()


@committed
def test_a_purchase_without_redis_leaves_its_place(
    settings: Settings, redis_outage: Outage
) -> None:
    settings.SHOP_MAX_WAITING = 1
    open_sale(5)
    redis_outage.begin()
    assert [buy().status for _ in range(3)] == [503] * 3
    assert is_empty()


@committed
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_error_that_nobody_foresaw_leaves_its_place(
    error: type[BaseException], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SystemExit: a worker that is ended in mid-purchase."""

    def fail(attempt: Any) -> Any:
        assert room.inside(APPLE) == 1
        raise error

    settings.SHOP_MAX_WAITING = 1
    open_sale(5)
    monkeypatch.setattr(checkout, "_buy", fail)
    for _ in range(3):
        with pytest.raises(error):
            buy()
    assert is_empty()


def test_a_crowd_never_has_more_places_than_there_are_and_leaves_none_taken() -> None:
    places, refused, seen = WaitingRoom(), [], []

    def come_and_go(number: int) -> None:
        for _ in range(200):
            try:
                with places.place("apple", waiting=WAITING):
                    seen.append(places.inside("apple"))
            except Full:
                refused.append(number)

    with ThreadPoolExecutor(8) as crowd:
        list(crowd.map(come_and_go, range(8)))
    assert len(seen) + len(refused) == 8 * 200
    assert max(seen) <= WAITING + 1
    assert places._inside == {}


# --- who is refused comes back later -------------------------------------------------------------


def test_1_000_who_are_refused_at_once_come_back_over_10_seconds() -> None:
    """All after one second, they would take the process's time again and again."""
    now = [50.0]
    places = WaitingRoom(clock=lambda: now[0])
    with places.place("apple", waiting=0):

        def refused() -> int:
            with pytest.raises(Full) as caught, places.place("apple", waiting=0):
                pass
            assert caught.value.retry_after is not None
            return caught.value.retry_after

        waits = [refused() for _ in range(1_000)]
        assert waits == sorted(waits)
        assert [waits.count(seconds) for seconds in range(1, 11)] == pytest.approx(
            [COME_BACK] * 10, abs=1
        )
        assert max(refused() for _ in range(10_000)) == LATEST
        now[0] += LATEST + 1
        assert refused() == 1  # nobody is on the way any more
