"""Purchases in an event loop: how many may wait, and what becomes of one whose client leaves or
whose server fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from pytest_django import Settings

from shop.ops.logs import request_id
from shop.sale import points, waiting_room
from shop.sale.points import installed
from shop.tests.database import ReplyCutter, database_at, kill_this_threads_backend
from shop.tests.loop import Loop, run_in_loop
from shop.tests.purchases import (
    APPLE,
    FirstBuyerGate,
    JsonReply,
    buy,
    committed,
    count_orders_and_stock,
    open_sale,
    run_at,
)

pytestmark = committed


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # the loop's own timeout ends it
        await asyncio.sleep(0.005)


@asynccontextmanager
async def a_queue(
    loop: Loop, lock: str, behind: int
) -> AsyncIterator[tuple[FirstBuyerGate, list[asyncio.Task[JsonReply]]]]:
    """One buyer inside and `behind` of them waiting. They go on when the block ends."""
    inside = FirstBuyerGate()

    def ask(number: int) -> asyncio.Task[JsonReply]:
        return asyncio.create_task(loop.buy(lock=lock, buyer=f"b{number}", key=f"k{number}"))

    # For those who arrive in a thread of the loop, too, nobody stops but the one who reads first.
    points.install(inside, may_stop=lambda name: False)
    try:
        asked = [ask(0)]
        await until(inside.reached.is_set)
        asked += [ask(number) for number in range(1, behind + 1)]
        await until(lambda: len(inside.started) == behind + 1)
        yield inside, asked
    finally:
        inside.leave.set()
        points.install(None)


def test_client_that_leaves_the_queue_buys_nothing(
    settings: Settings,
) -> None:
    """It waits without a thread, and its seat is free at once."""
    settings.SHOP_MAX_WAITING = 1
    open_sale(10)

    async def test(loop: Loop) -> None:
        async with a_queue(loop, "redis", 1) as (_, asked):
            refused = await loop.buy(buyer="b9")
            assert (refused.status, refused.body["outcome"]) == (429, "full")
            asked[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked[1]
            assert waiting_room.inside[APPLE] == 1
            last = asyncio.create_task(loop.buy(buyer="b9"))
            await until(lambda: waiting_room.inside[APPLE] == 2)
        assert ((await asked[0]).status, (await last).status) == (201, 201)
        again = await loop.buy(buyer="b1", key="k1")
        assert (again.status, again.body["replayed"]) == (201, False)

    run_in_loop(test)
    assert count_orders_and_stock() == (3, 7)
    assert not waiting_room.inside


@pytest.mark.parametrize("lock", ["token", "row-lock"])
def test_client_that_leaves_a_waiting_thread_buys(lock: str, settings: Settings) -> None:
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

    run_in_loop(test)
    assert count_orders_and_stock() == (2, 8)
    assert not waiting_room.inside


def test_client_that_leaves_before_a_thread_is_free() -> None:
    """It buys nothing."""
    open_sale(10)

    async def test(loop: Loop) -> None:
        threads = loop.application.threads.whole
        async with a_queue(loop, "token", 0) as (inside, asked):
            queued = asyncio.create_task(loop.buy(lock="token", buyer="b9"))
            await until(threads._work_queue.qsize)
            queued.cancel()
            with pytest.raises(asyncio.CancelledError):
                await queued
        assert (await asked[0]).status == 201
        assert (await loop.buy(lock="token")).body["stock_seen"] == 9
        assert len(inside.started) == 1

    run_in_loop(test, thread_count=1)
    assert count_orders_and_stock() == (2, 8)


@pytest.mark.parametrize("lock", ["redis", "token", "row-lock"])
def test_client_that_leaves_in_the_section_has_bought(lock: str) -> None:
    """The next buyer gets the lock."""
    open_sale(10)

    async def test(loop: Loop) -> None:
        async with a_queue(loop, lock, 1) as (_, asked):
            for _ in range(3):  # however often: else the lock is free while it still writes
                asked[0].cancel()
                await asyncio.sleep(0)
                assert not asked[0].done()
        with pytest.raises(asyncio.CancelledError):
            await asked[0]
        assert (await asked[1]).body["stock_seen"] == 9
        again = await loop.buy(lock=lock, buyer="b0", key="k0")
        assert (again.status, again.body["replayed"]) == (200, True)

    run_in_loop(test)
    assert count_orders_and_stock() == (2, 8)


# --- a server that fails in the middle of a purchase --------------------------------------------


@pytest.mark.parametrize("lock", ["redis", "token"])
def test_killed_backend_under_the_lock_is_unavailable(
    lock: str,
) -> None:
    """The connection that broke is a thread's: the loop may not touch it, and was 500 for it. The
    lines that the thread logs have the id of its request."""
    open_sale(3)
    logged_as: list[str] = []

    def fail() -> None:
        logged_as.append(request_id.get())
        kill_this_threads_backend()

    async def test(loop: Loop) -> None:
        with installed(run_at("after_read", fail)):
            refused = await loop.buy(lock=lock, key="k1")
        assert logged_as == [refused.headers["X-Request-ID"]]
        assert (refused.status, refused.body["outcome"]) == (503, "unavailable"), refused.body
        assert refused.headers["Retry-After"] == "1"
        assert not waiting_room.inside
        again = await loop.buy(lock=lock, key="k1")
        assert (again.status, again.body["stock_seen"]) == (201, 3)

    run_in_loop(test)
    assert count_orders_and_stock() == (1, 2)


@pytest.mark.parametrize("lock", ["redis", "token"])
def test_commit_without_a_reply_is_unknown(lock: str) -> None:
    """Its order is replayed."""
    open_sale(3)

    async def lost(loop: Loop) -> None:
        unknown = await loop.buy(lock=lock, key="k1")
        assert (unknown.status, unknown.body["outcome"]) == (503, "unknown"), unknown.body

    with ReplyCutter() as proxy, database_at(proxy.folder):
        run_in_loop(lost)
    assert proxy.cut == 1
    again = buy(lock=lock, key="k1")
    assert (again.status, again.body["replayed"]) == (200, True)
    assert count_orders_and_stock() == (1, 2)
