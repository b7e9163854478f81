"""AsyncRedisLock and a server that is silent, loses replies, is away or was demoted."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio

from .. import AsyncRedisLock, LockBackendError, LossReason, RedisLock, Release
from ..scripts import WireError, packed
from ..testing.proxy import Proxy
from ..testing.server import Server
from .stepping import is_so, until, waits
from .test_async_cancel import is_free, lock_on

#: How a request begins that runs a script by its text.
AS_TEXT = b"$4\r\nEVAL\r\n"


def test_a_silent_server_delays_a_short_wait_by_half_a_second_and_gives_the_lock_to_nobody(
    own_server: Server,
) -> None:
    async def main() -> None:
        async with lock_on(own_server.port, ttl=30) as lock:
            assert not await lock.locked()
            own_server.signal(signal.SIGSTOP)
            started = time.monotonic()
            with pytest.raises(LockBackendError):
                await lock.acquire(0.1)
            assert time.monotonic() - started < 1.0
            own_server.signal(signal.SIGCONT)
            await until(lambda: is_free(lock), within=5)
            async with lock.hold(wait=1):
                pass

    asyncio.run(main())


def test_a_lost_reply_is_an_error_and_what_was_granted_is_given_back(
    server: Server, proxy: Proxy
) -> None:
    async def main() -> None:
        async with lock_on(proxy.port) as lock:
            assert not await lock.locked()
            proxy.lose_reply(b"EVALSHA")
            with pytest.raises(LockBackendError):
                await lock.acquire(5)
            await until(lambda: is_free(lock), within=3)
            lease = await lock.acquire(5)
            proxy.lose_reply(b"EVALSHA")
            assert await lease.release() is Release.UNKNOWN
            assert await lease.release() is Release.UNKNOWN  # it may have been the one before
            assert await is_free(lock)

    asyncio.run(main())


def test_a_release_whose_connection_was_cut_is_repeated_long_before_the_ttl_ends_it(
    server: Server, client: redis.Redis, proxy: Proxy
) -> None:
    near = RedisLock(client, "fuzzed", ttl=60)

    async def main() -> None:
        async with lock_on(proxy.port, ttl=60) as lock:
            lease = await lock.acquire(1)
            proxy.cut()
            proxy.lose_request(b"\r\n")
            assert await lease.release() is Release.UNKNOWN
            await until(lambda: is_so(not near.locked()))

    asyncio.run(main())


def test_an_outage_shorter_than_the_lease_loses_nothing_and_a_longer_one_is_noticed(
    own_server: Server,
) -> None:
    async def main() -> None:
        lost: list[LossReason] = []
        async with lock_on(own_server.port, ttl=0.9, on_lost=lambda _, r: lost.append(r)) as lock:
            lease = await lock.acquire(1)
            own_server.signal(signal.SIGSTOP)
            await asyncio.sleep(0.4)
            own_server.signal(signal.SIGCONT)
            await asyncio.sleep(0.9)
            lease.check()
            own_server.signal(signal.SIGSTOP)
            async with asyncio.timeout(2):
                await lease.lost_event.wait()
            assert lease.remaining() == 0
            await asyncio.sleep(0.1)  # the server's key lives a little longer
            own_server.signal(signal.SIGCONT)
            await until(lambda: is_so(lost == [LossReason.EXPIRED]))
            assert await lease.release() is Release.EXPIRED
            await (await lock.acquire(2)).release()

    asyncio.run(main())


def test_renewals_survive_scripts_that_are_forgotten_and_a_connection_that_is_cut_right_after(
    server: Server, client: redis.Redis, proxy: Proxy
) -> None:
    """Each of several is told that its script is unknown, and the line ends before all are sent."""

    async def main() -> None:
        async with lock_on(proxy.port, ttl=1.5) as lock:
            locks = [AsyncRedisLock(lock.client, f"forgotten {n}", ttl=1.5) for n in range(4)]
            leases = [await each.acquire(1) for each in locks]
            client.script_flush()
            proxy.lose_reply(AS_TEXT)
            later = max(lease.deadline for lease in leases) + 2
            await until(lambda: is_so(all(lease.deadline > later for lease in leases)), within=6)
            assert not any(lease.lost for lease in leases)
            for lease in leases:
                assert await lease.release() is Release.RELEASED

    asyncio.run(main())


def test_what_is_sent_on_a_line_that_has_ended_fails_at_once(server: Server, proxy: Proxy) -> None:
    async def main() -> None:
        async with lock_on(proxy.port) as lock:
            assert not await lock.locked()
            line: Any = (await lock._here()).connections.line
            proxy.cut()
            await until(lambda: is_so(line.ended))
            with pytest.raises(WireError) as failed:
                await asyncio.wait_for(line.submit(packed("PING")), 3)
            assert not failed.value.sent

    asyncio.run(main())


def test_a_demoted_master_is_left_after_its_first_refusal(own_server: Server) -> None:
    admin = own_server.client()

    async def main() -> None:
        async with lock_on(own_server.port) as lock:
            here = await lock._here()
            lease = await lock.acquire(1)
            waiting = asyncio.create_task(lock.acquire(10))
            await until(lambda: waits(lock))
            channel = here.wakeups.waiters.channel
            admin.replicaof("127.0.0.1", "1")
            with pytest.raises(LockBackendError, match="read only replica"):
                await AsyncRedisLock(lock.client, "another", ttl=10).acquire(0)
            admin.replicaof("no", "one")
            await until(lambda: is_so(_listens_elsewhere(here, channel)))
            await lease.release()
            await (await waiting).release()

    asyncio.run(main())


def _listens_elsewhere(here: Any, channel: bytes) -> bool:
    waiters = here.wakeups.waiters
    return bool(waiters.listening and waiters.channel != channel)


def test_thousands_of_tasks_on_a_silent_server_do_not_stop_their_loop(proxy: Proxy) -> None:
    """Each gives up in a moment of its own: no look at all the others."""
    proxy.black_hole()
    tasks = 10_000

    async def main() -> None:
        client = redis.asyncio.Redis(port=proxy.port)
        lock = AsyncRedisLock(client, "silent", ttl=30)
        waiting = [asyncio.create_task(lock.acquire(0.5)) for _ in range(tasks)]
        longest, before = 0.0, time.thread_time()
        while not all(task.done() for task in waiting):
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - before)
            before = time.thread_time()
        assert {type(task.exception()) for task in waiting} == {LockBackendError}
        print(f"the loop stood still for {longest:.2f} s")
        assert longest < 1.7  # processor seconds: 2.6 where each looks at all, else 0.8
        await client.aclose()

    asyncio.run(main())


def test_an_adoption_that_is_cancelled_as_its_loop_ends_is_given_back(
    client: redis.Redis, server: Server
) -> None:
    near = RedisLock(client, "adopted late", ttl=30)
    handed = near.acquire(1).hand_over()

    async def main() -> None:
        lock = AsyncRedisLock(redis.asyncio.Redis(port=server.port), "adopted late", ttl=30)
        assert await lock.locked()
        adopting = asyncio.create_task(lock.adopt(handed))
        await asyncio.sleep(0)
        adopting.cancel()
        with suppress(asyncio.CancelledError):
            await adopting

    asyncio.run(main())
    assert not near.locked()
