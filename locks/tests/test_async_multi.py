"""AsyncMultiLock where it is cancelled, and where a loss ends the block. See also contract/."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress
from typing import Any

import pytest
import redis

from .. import AsyncMultiLease, AsyncMultiLock, LockLost, LossReason, Release
from ..testing.server import Proxy, Server
from .looped import Make, are, locks_on, owners, run
from .stepping import Stepped, until, waits

MOST = 60


def test_a_release_that_did_not_arrive_is_sent_when_it_is_asked_for_again(
    server: Server, proxy: Proxy
) -> None:
    async def main() -> None:
        async with locks_on(proxy.port) as make:
            lease = await AsyncMultiLock([make("first"), make("second")]).acquire(1)
            shared: Any = await make("first")._here()
            shared.watchdog.abandon = lambda *_: None  # else it would release them as well
            proxy.black_hole()
            line = shared.connections.line
            releasing = asyncio.create_task(lease.release())
            await asyncio.sleep(0.05)
            line._link.close()
            assert await releasing is Release.UNKNOWN
            proxy.pass_on()
            assert await lease.release() is Release.RELEASED

    asyncio.run(main())


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
