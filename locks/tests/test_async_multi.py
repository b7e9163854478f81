"""AsyncMultiLock: all or none, in MultiLock's order, whatever is cancelled. See test_multi.py."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import redis
import redis.asyncio

from .. import (
    AsyncMultiLease,
    AsyncMultiLock,
    AsyncRedisLock,
    LockLost,
    LockTimeout,
    LossReason,
    MultiLock,
    RedisLock,
    Release,
)
from ..aio import shared
from ..testing.server import Server
from .stepping import Stepped, until, waits
from .waiting import in_thread

Make = Callable[..., AsyncRedisLock]
MOST = 60


@asynccontextmanager
async def locks_on(port: int) -> AsyncIterator[Make]:
    """Makes locks of one client of its own, whose tasks end with the block."""
    client = redis.asyncio.Redis(port=port)
    yield lambda name, **options: AsyncRedisLock(client, name, **{"ttl": 30, **options})
    for each in shared._shared.pop(client.connection_pool, {}).values():
        await each.end.aclose()
    await client.aclose()


def run(port: int, work: Callable[[Make], Awaitable[None]]) -> None:
    async def main() -> None:
        async with locks_on(port) as make:
            await work(make)

    asyncio.run(main())


async def owners(*locks: AsyncRedisLock) -> list[bool]:
    return [await lock.locked() for lock in locks]


async def are(state: list[bool], *locks: AsyncRedisLock) -> bool:
    return await owners(*locks) == state


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


def test_losing_one_is_losing_the_lease_and_ends_the_block(
    server: Server, client: redis.Redis
) -> None:
    async def work(make: Make) -> None:
        kept, lost = make("kept", ttl=0.6), make("lost", ttl=0.6)
        cart = AsyncMultiLock([kept, lost])
        leases: list[AsyncMultiLease] = []
        with pytest.raises(LockLost):  # noqa: PT012
            async with asyncio.timeout(5), cart.hold(wait=1, cancel_on_loss=True) as lease:
                leases.append(lease)
                client.delete("lock:{lost}")
                try:
                    await asyncio.sleep(10)
                finally:
                    assert lease.loss is LossReason.GONE
                    assert lease.lost_event.is_set()
                    assert lease.remaining() == 0
                    # nobody works on the other one before we have left the block
                    assert await kept.locked()
        assert leases[0].outcome is Release.EXPIRED
        assert not await kept.locked()

    run(server.port, work)


def test_a_lock_that_was_lost_while_another_was_waited_for_is_noticed(server: Server) -> None:
    async def work(make: Make) -> None:
        short, slow = make("a", ttl=0.2, renew=False), make("b")
        async with slow.hold(wait=5):
            both = asyncio.create_task(AsyncMultiLock([short, slow]).acquire(10))
            await until(lambda: waits(slow))
            async with short.hold(wait=5):  # the first one has expired meanwhile
                pass
        with pytest.raises(LockLost, match=r"^a: lost while others were waited for"):
            await both
        assert not await slow.locked()

    run(server.port, work)


def test_a_release_that_was_cancelled_was_sent_for_each_and_may_be_called_again(
    server: Server,
) -> None:
    async def work(make: Make) -> None:
        a, b = make("a"), make("b")
        lease = await AsyncMultiLock([a, b]).acquire(1)
        task = asyncio.create_task(lease.release())
        await asyncio.sleep(0)  # it waits for its replies
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await owners(a, b) == [False, False]
        assert await lease.release() is Release.RELEASED

    run(server.port, work)


def test_a_release_is_sent_for_each_before_it_first_suspends(server: Server) -> None:
    """So it is sent even where the loop ends before the next turn."""

    async def work(make: Make) -> None:
        a, b = make("a"), make("b")
        release = (await AsyncMultiLock([a, b]).acquire(1)).release()
        release.send(None)
        release.close()
        assert await owners(a, b) == [False, False]

    run(server.port, work)


def test_a_release_that_fails_keeps_none_of_the_others(server: Server) -> None:
    async def work(make: Make) -> None:
        locks = [make(name) for name in "abc"]
        lease = await AsyncMultiLock(locks).acquire(1)
        found, once = lease.leases[1]._found, [ZeroDivisionError()]

        def fail(*args: object) -> Release:
            if once:
                raise once.pop()
            return found(*args)  # type: ignore[arg-type]

        lease.leases[1]._found = fail
        with pytest.raises(ZeroDivisionError):
            await lease.release()
        assert await owners(*locks) == [False] * 3
        await lease.release()  # may be called again

    run(server.port, work)


def test_a_dropped_multi_lease_is_not_renewed(server: Server) -> None:
    async def work(make: Make) -> None:
        locks = [make(name, ttl=0.3) for name in "ab"]
        await AsyncMultiLock(locks).acquire(1)
        gc.collect()
        async with AsyncMultiLock(locks).hold(wait=5):
            pass

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
