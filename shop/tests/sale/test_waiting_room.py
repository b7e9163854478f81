"""SHOP_MAX_WAITING and SHOP_MAX_PURCHASES: beyond them a purchase is answered 429."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.db import connection
from pytest_django import Settings

from shop.errors import Full
from shop.sale import points, waiting_room
from shop.sale.waiting_room import COME_BACK, LATEST
from shop.tests.till import TIMEOUT, Answer, Inside, books, buy, committed, eventually, open_sale

WAITING = 2
#: Each waits for something else: a hand-over, a key that it polls, a row.
WAITERS = ["redis", "token", "row-lock"]


def ask(lock: str, number: int, key: str | None = None) -> Answer:
    try:
        return buy(lock=lock, buyer=f"b{number}", key=key)
    finally:
        connection.close()


@contextmanager
def a_queue(lock: str, behind: int) -> Iterator[tuple[Inside, list[Future[Answer]]]]:
    """One buyer inside and `behind` of them waiting. They go on when the block ends."""
    inside = Inside()
    with points.installed(inside), ThreadPoolExecutor(behind + 1) as pool:
        try:
            asked = [pool.submit(ask, lock, 0)]
            assert inside.reached.wait(TIMEOUT)
            asked += [pool.submit(ask, lock, number) for number in range(1, behind + 1)]
            eventually(
                lambda: len(inside.begun) == behind + 1, what=f"{behind} wait", timeout=TIMEOUT
            )
            yield inside, asked
        finally:
            inside.leave.set()


def is_empty() -> bool:
    return not waiting_room.inside


@committed
@pytest.mark.parametrize("lock", WAITERS)
def test_beside_the_holder_two_wait_and_the_third_is_429_at_once(
    lock: str, settings: Settings
) -> None:
    settings.SHOP_MAX_WAITING = WAITING
    open_sale(10)
    with a_queue(lock, WAITING) as (inside, asked):
        refused = ask(lock, 9)
        assert len(inside.begun) == WAITING + 1  # it did not get as far as the strategy
    assert refused.status == 429
    assert refused.headers["Retry-After"] == "1"
    assert refused.body == {
        "outcome": "full",
        "error": "Too many buyers wait for this product; nothing was sold. Ask again with the same "
        "key.",
    }
    assert [answer.result(TIMEOUT).status for answer in asked] == [201] * (WAITING + 1)
    assert buy(lock=lock).status == 201
    assert books() == (WAITING + 2, 10 - WAITING - 2)
    assert is_empty()


@committed
def test_who_is_refused_for_one_product_buys_another_until_all_together_are_too_many(
    settings: Settings,
) -> None:
    """They share the threads, some of which are kept free for pages and health checks. A key that
    has bought waits like any other: uncounted repeats would fill the queue all the same."""
    settings.SHOP_MAX_WAITING = 1
    open_sale(5)
    open_sale(5, product="pear")
    assert buy(key="k1", buyer="b9").status == 201
    with a_queue("redis", 1):
        assert ask("redis", 9, key="k1").status == 429
        assert buy(product="pear").status == 201
        settings.SHOP_MAX_PURCHASES = 2
        assert buy(product="pear").status == 429
    assert buy(product="pear").status == 201
    assert buy(key="k1", buyer="b9").status == 200


def test_1_000_who_are_refused_at_once_come_back_over_10_seconds(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All after one second, they would take the process's time again and again."""
    settings.SHOP_MAX_PURCHASES = 1
    now = [50.0]
    monkeypatch.setattr(waiting_room, "monotonic", lambda: now[0])
    monkeypatch.setattr(waiting_room, "_next", 0.0)
    with waiting_room.place("apple"):

        def refused() -> int:
            with pytest.raises(Full) as caught, waiting_room.place("apple"):
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
