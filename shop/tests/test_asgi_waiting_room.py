"""Buyers who wait in an event loop: how many may, and what becomes of one whose client leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import pytest
from pytest_django import Settings

from shop.sale import points
from shop.sale.waiting_room import room
from shop.tests.loop import TIMEOUT, Loop, in_a_loop
from shop.tests.till import APPLE, Answer, books, committed, open_sale

pytestmark = committed

#: `redis` waits without a thread; the others each in one, for a key that it polls or for a row.
WAITERS = ["redis", "token", "row-lock"]


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # the loop's own timeout ends it
        await asyncio.sleep(0.005)


class Inside:
    """Stops the first buyer inside the critical section until `leave` is set."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.reached, self.leave = threading.Event(), threading.Event()

    def __call__(self, name: str, facts: Mapping[str, object]) -> None:
        if name == "begins":
            self.begun.append(str(facts["lock"]))
        elif name == "after_read" and not self.reached.is_set():
            self.reached.set()
            assert self.leave.wait(TIMEOUT)


@asynccontextmanager
async def a_queue(
    loop: Loop, lock: str, behind: int
) -> AsyncIterator[tuple[Inside, list[asyncio.Task[Answer]]]]:
    """One buyer inside, so many behind it. They go on when the block ends."""
    inside = Inside()

    def ask(number: int) -> asyncio.Task[Answer]:
        return asyncio.create_task(loop.buy(lock=lock, buyer=f"b{number}", key=f"k{number}"))

    # For whoever arrives in a thread of the loop, too, nobody stops but the one who reads first.
    points.install(inside, stops=lambda name: False)
    try:
        asked = [ask(0)]
        await until(inside.reached.is_set)
        asked += [ask(number) for number in range(1, behind + 1)]
        await until(lambda: len(inside.begun) == behind + 1)
        yield inside, asked
    finally:
        inside.leave.set()
        points.install(None)


@pytest.mark.parametrize("lock", WAITERS)
def test_beside_the_holder_two_wait_and_the_third_is_429_at_once(
    lock: str, settings: Settings
) -> None:
    settings.SHOP_MAX_WAITING = 2
    open_sale(10)

    async def test(loop: Loop) -> None:
        async with a_queue(loop, lock, 2) as (inside, asked):
            refused = await loop.buy(lock=lock, buyer="b9")
            assert (refused.status, refused.body["outcome"]) == (429, "full")
            assert refused.headers["Retry-After"] == "1"
            assert len(inside.begun) == 3  # it did not get as far as the strategy
        assert [(await each).status for each in asked] == [201] * 3

    in_a_loop(test)
    assert books() == (3, 7)
    assert not room._inside


def test_who_leaves_while_waiting_without_a_thread_buys_nothing_and_its_place_is_free(
    settings: Settings,
) -> None:
    settings.SHOP_MAX_WAITING = 1
    open_sale(10)

    async def test(loop: Loop) -> None:
        async with a_queue(loop, "redis", 1) as (_, asked):
            assert (await loop.buy(buyer="b9")).status == 429
            asked[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked[1]
            assert room.inside(APPLE) == 1
            last = asyncio.create_task(loop.buy(buyer="b9"))
            await until(lambda: room.inside(APPLE) == 2)
        assert ((await asked[0]).status, (await last).status) == (201, 201)
        again = await loop.buy(buyer="b1", key="k1")
        assert (again.status, again.body["replayed"]) == (201, False)

    in_a_loop(test)
    assert books() == (3, 7)
    assert not room._inside


@pytest.mark.parametrize("lock", ["token", "row-lock"])
def test_who_leaves_while_its_thread_waits_keeps_the_place_and_its_key_has_the_order(
    lock: str, settings: Settings
) -> None:
    """A thread that waits cannot be ended: the purchase goes on, as on a node of threads, and who
    asks again with its key gets what it bought."""
    settings.SHOP_MAX_WAITING = 1
    open_sale(10)

    async def test(loop: Loop) -> None:
        async with a_queue(loop, lock, 1) as (_, asked):
            asked[1].cancel()
            await asyncio.sleep(0)
            assert (await loop.buy(lock=lock, buyer="b9")).status == 429
        for each in asked:
            with suppress(asyncio.CancelledError):
                await each
        again = await loop.buy(lock=lock, buyer="b1", key="k1")
        assert (again.status, again.body["replayed"]) == (200, True)

    in_a_loop(test)
    assert books() == (2, 8)
    assert not room._inside


@pytest.mark.parametrize("lock", WAITERS)
def test_who_leaves_inside_the_section_has_bought_and_the_next_gets_the_lock(lock: str) -> None:
    open_sale(10)

    async def test(loop: Loop) -> None:
        async with a_queue(loop, lock, 1) as (_, asked):
            asked[0].cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await asked[0]
        assert (await asked[1]).body["stock_seen"] == 9
        again = await loop.buy(lock=lock, buyer="b0", key="k0")
        assert (again.status, again.body["replayed"]) == (200, True)

    in_a_loop(test)
    assert books() == (2, 8)
