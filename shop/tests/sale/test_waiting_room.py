"""The limits on simultaneous purchases in a process. Further buyers are refused with 429.

SHOP_MAX_WAITING limits the buyers who wait for one product, SHOP_MAX_PURCHASES all purchases.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.db import connection
from pytest_django import Settings

from shop.errors import WaitingRoomFull
from shop.sale import points, waiting_room
from shop.sale.waiting_room import LONGEST_RETRY_AFTER_SECONDS, RETRIES_PER_SECOND
from shop.tests.purchases import (
    TIMEOUT_SECONDS,
    FirstBuyerGate,
    JsonReply,
    buy,
    committed,
    count_orders_and_stock,
    eventually,
    open_sale,
)

MAX_WAITING = 2
#: Under `redis` the holder hands the lock over to a waiting buyer, under `token` a waiting buyer
#: polls a key, and under `row-lock` it waits for a row.
STRATEGIES_THAT_WAIT = ["redis", "token", "row-lock"]


def buy_and_disconnect(lock: str, number: int, key: str | None = None) -> JsonReply:
    """Buy as buyer `b<number>`, and close the connection of this thread to the database."""
    try:
        return buy(lock=lock, buyer=f"b{number}", key=key)
    finally:
        connection.close()


@contextmanager
def queue_buyers(
    lock: str, waiting: int
) -> Iterator[tuple[FirstBuyerGate, list[Future[JsonReply]]]]:
    """In the block, buyer `b0` is stopped while it holds the lock, and other buyers wait for it.

    Yields the gate that stops `b0`, and the futures of all purchases, `b0` first.

    waiting  the number of buyers who wait
    """
    gate = FirstBuyerGate()
    with points.use_probe(gate), ThreadPoolExecutor(waiting + 1) as pool:
        try:
            purchases = [pool.submit(buy_and_disconnect, lock, 0)]
            assert gate.first_buyer_inside.wait(TIMEOUT_SECONDS)
            purchases += [
                pool.submit(buy_and_disconnect, lock, number) for number in range(1, waiting + 1)
            ]
            eventually(
                lambda: gate.purchase_count == waiting + 1,
                what=f"{waiting} buyers wait",
                timeout=TIMEOUT_SECONDS,
            )
            yield gate, purchases
        finally:
            gate.may_continue.set()


def is_waiting_room_empty() -> bool:
    return not waiting_room.purchases_under_way


@committed
@pytest.mark.parametrize("lock", STRATEGIES_THAT_WAIT)
def test_buyer_is_429_at_once_if_the_queue_is_full(lock: str, settings: Settings) -> None:
    """MAX_WAITING buyers wait for the holder of the lock, so one more buyer is refused."""
    settings.SHOP_MAX_WAITING = MAX_WAITING
    open_sale(10)
    with queue_buyers(lock, waiting=MAX_WAITING) as (gate, purchases):
        refusal = buy_and_disconnect(lock, 9)
        # The refused buyer did not reach the strategy.
        assert gate.purchase_count == MAX_WAITING + 1
    assert refusal.status == 429
    assert refusal.headers["Retry-After"] == "1"
    assert refusal.body == {
        "outcome": "full",
        "error": WaitingRoomFull.text,
    }
    for purchase in purchases:
        assert purchase.result(TIMEOUT_SECONDS).status == 201
    assert buy(lock=lock).status == 201
    assert count_orders_and_stock() == (MAX_WAITING + 2, 10 - MAX_WAITING - 2)
    assert is_waiting_room_empty()


@committed
def test_limits_apply_per_product_and_in_total(settings: Settings) -> None:
    """SHOP_MAX_WAITING limits the buyers of one product, SHOP_MAX_PURCHASES those of all products.

    While a product's queue is full, a repeated request is refused as well, although its
    Idempotency-Key already has an order. A repeated request waits for the lock like any other.
    """
    settings.SHOP_MAX_WAITING = 1
    open_sale(5)
    open_sale(5, product="pear")
    assert buy(key="k1", buyer="b9").status == 201
    with queue_buyers("redis", waiting=1):
        assert buy_and_disconnect("redis", 9, key="k1").status == 429
        assert buy(product="pear").status == 201
        settings.SHOP_MAX_PURCHASES = 2
        assert buy(product="pear").status == 429
    assert buy(product="pear").status == 201
    assert buy(key="k1", buyer="b9").status == 200


def test_refused_buyers_return_spread_over_10_seconds(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first 100 refused buyers (RETRIES_PER_SECOND) get Retry-After: 1, the next 100 get 2, ...

    If all buyers retried after one second, the process would be busy with refusing them. No buyer
    is told to wait longer than LONGEST_RETRY_AFTER_SECONDS.
    """
    settings.SHOP_MAX_PURCHASES = 1
    now = [50.0]  # the waiting room's clock, in seconds
    monkeypatch.setattr(waiting_room, "monotonic", lambda: now[0])
    monkeypatch.setattr(waiting_room, "_last_retry_at", 0.0)
    with waiting_room.occupy_seat("apple"):

        def refuse_buyer() -> int:
            """Ask for a seat when there is none. Return the seconds of the Retry-After header."""
            with pytest.raises(WaitingRoomFull) as caught, waiting_room.occupy_seat("apple"):
                pass
            assert caught.value.retry_after is not None
            return caught.value.retry_after

        waits = [refuse_buyer() for _ in range(1_000)]
        assert waits == sorted(waits)
        assert [waits.count(seconds) for seconds in range(1, 11)] == pytest.approx(
            [RETRIES_PER_SECOND] * 10, abs=1
        )
        assert max(refuse_buyer() for _ in range(10_000)) == LONGEST_RETRY_AFTER_SECONDS
        now[0] += LONGEST_RETRY_AFTER_SECONDS + 1
        assert refuse_buyer() == 1  # all refused buyers had time to return
