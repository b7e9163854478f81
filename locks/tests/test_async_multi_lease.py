"""AsyncMultiLease: the leases of several locks as one, when one is lost, dropped or released."""

from __future__ import annotations

import asyncio
import gc

import pytest
import redis

from .. import AsyncMultiLease, AsyncMultiLock, LockLost, LossReason, Release
from ..testing.server import Server
from .looped import Make, owners, run
from .stepping import until, waits


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
