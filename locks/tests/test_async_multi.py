"""AsyncMultiLock: all or none, in MultiLock's order, whatever is cancelled. See test_multi.py."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import suppress

import pytest
import redis
import redis.asyncio

from .. import (
    AsyncMultiLock,
    LockTimeout,
    MultiLock,
    RedisLock,
    Release,
)
from ..testing.server import Server
from .looped import Make, are, locks_on, owners, run
from .stepping import Stepped, until, waits
from .waiting import in_thread

MOST = 60


def test_two_tasks_that_name_the_locks_in_opposite_orders_never_hold_one_each(
    server: Server,
) -> None:
    async def work(make: Make) -> None:
        a, b = make("a"), make("b")
        async with a.hold(wait=5), b.hold(wait=5):
            tasks = [
                asyncio.create_task(AsyncMultiLock(each).acquire(5)) for each in ([a, b], [b, a])
            ]
            await until(lambda: waits(a, 2))
            assert (await b.inspect()).waiters == ()  # not before it has the first
        for _ in range(2):
            done, pending = await asyncio.wait(tasks, timeout=5, return_when="FIRST_COMPLETED")
            assert len(done) == 1
            tasks = list(pending)
            assert await done.pop().result().release() is Release.RELEASED
        assert await owners(a, b) == [False, False]

    run(server.port, work)


def test_twenty_tasks_and_threads_get_them_in_whatever_order_they_name_them(
    server: Server, client: redis.Redis
) -> None:
    names = ["a", "b", "c"]
    inside = dict.fromkeys(names, 0)

    def chosen(seed: int) -> list[str]:
        return random.Random(seed).sample(names, 2 + seed % 2)

    def enter(mine: list[str]) -> None:
        for name in mine:
            inside[name] += 1
            assert inside[name] == 1
        for name in mine:
            inside[name] -= 1

    def in_threads(seed: int) -> None:
        for _ in range(3):
            with MultiLock(RedisLock(client, n, ttl=10) for n in chosen(seed)).hold(wait=30):
                enter(chosen(seed))

    async def work(make: Make) -> None:
        async def in_tasks(seed: int) -> None:
            for _ in range(3):
                async with AsyncMultiLock(map(make, chosen(seed))).hold(wait=30):
                    enter(chosen(seed))

        threads = [in_thread(lambda seed=seed: in_threads(seed)) for seed in range(10, 20)]  # type: ignore[misc]
        async with asyncio.timeout(30):
            await asyncio.gather(*map(in_tasks, range(10)), *map(asyncio.wrap_future, threads))
        assert not any(await owners(*map(make, names)))

    run(server.port, work)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_task_cancelled_at_any_of_its_awaits_leaves_none_of_them_held(
    server: Server, late: bool
) -> None:
    """With the second one held by somebody at first, so that it is waited for."""

    async def scenario(cart: AsyncMultiLock) -> None:
        async with cart.hold(wait=5) as lease:
            await asyncio.sleep(0)
            lease.check()

    async def fuzz(make: Make, at: int) -> bool:
        a, b, c = make("a"), make("b"), make("c")
        holder = await b.acquire(5)
        stepped = Stepped(scenario(AsyncMultiLock([c, a, b])), at, late=late)
        task = asyncio.create_task(stepped.run())

        async def settled() -> bool:
            return task.done() or await waits(b)

        await until(settled)
        await holder.release()
        with suppress(asyncio.CancelledError):
            async with asyncio.timeout(3):
                await task
        await until(lambda: are([False] * 3, a, b, c), within=0.5)
        for lock in (a, b, c):
            assert (await lock.inspect()).waiters == ()
        return stepped.fired

    async def work(make: Make) -> None:
        for at in range(1, MOST):
            if not await fuzz(make, at):
                assert at > 4
                return
        raise AssertionError("more awaits than expected")

    run(server.port, work)


def test_a_cancellation_while_the_second_is_waited_for_releases_the_first_at_once(
    server: Server,
) -> None:
    async def work(make: Make) -> None:
        a, b = make("a"), make("b")
        async with b.hold(wait=5):
            task = asyncio.create_task(AsyncMultiLock([a, b]).acquire(5))
            await until(lambda: waits(b))
            assert await a.locked()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not await a.locked()  # its release was sent before this question
            assert (await b.inspect()).waiters == ()

    run(server.port, work)


def test_a_cancellation_does_not_wait_for_a_silent_server(
    server: Server, own_server: Server
) -> None:
    """The first lock's server is silent by then: its release is sent, and tried again."""

    async def work(make: Make) -> None:
        b = make("b")
        async with locks_on(own_server.port) as there, b.hold(wait=5):
            a = there("a")
            task = asyncio.create_task(AsyncMultiLock([a, b]).acquire(20))
            await until(lambda: waits(b))
            own_server.signal(signal.SIGSTOP)
            started = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - started < 2  # the socket timeout is 5 s
            own_server.signal(signal.SIGCONT)
            await until(lambda: are([False], a))

    run(server.port, work)


def test_those_that_were_acquired_are_released_when_one_is_not_free_in_time(
    server: Server,
) -> None:
    async def work(make: Make) -> None:
        a, b, c = make("a"), make("b"), make("c")
        cart = AsyncMultiLock([c, b, a])
        async with c.hold(wait=5):
            started = time.monotonic()
            with pytest.raises(LockTimeout, match=r"^c: "):
                await cart.acquire(0.3)
            assert 0.3 <= time.monotonic() - started < 0.8  # not 0.3 s for each of them
            assert await owners(a, b, c) == [False, False, True]
            assert (await c.inspect()).waiters == ()
            assert await cart.try_acquire() is None
        lease = await cart.try_acquire()
        assert lease is not None
        assert list(lease.fences) == ["a", "b", "c"]
        assert 29 < lease.remaining() <= 30
        assert await lease.owned()
        await lease.extend(60)
        assert lease.remaining() > 50
        with pytest.raises(NotImplementedError):
            await lease.hand_over()
        assert await lease.release() is Release.RELEASED
        assert await owners(a, b, c) == [False] * 3

    run(server.port, work)


def test_arguments_that_cannot_work_are_refused(server: Server) -> None:
    async def work(make: Make) -> None:
        with pytest.raises(ValueError, match="name what is to be locked"):
            AsyncMultiLock([])
        with pytest.raises(ValueError, match="another name"):
            AsyncMultiLock([make("a"), make("a", key="b")])
        for wait in (-1, float("nan")):
            with pytest.raises(ValueError, match="give seconds"):
                await AsyncMultiLock([make("a"), make("b")]).acquire(wait)
        assert not await make("a").locked()

    run(server.port, work)
