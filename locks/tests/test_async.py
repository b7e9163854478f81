"""What is particular to asyncio: loops, clients, a silent server. See also contract/."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import redis
import redis.asyncio

from .. import AsyncLease, AsyncRedisLock, LockBackendError, LossReason, RedisLock, Release
from ..testing.process import LOCKS, ROOT
from ..testing.proxy import Proxy
from ..testing.server import Server, eventually
from .stepping import until
from .test_async_cancel import is_free, lock_on
from .waiting import held


def test_threads_and_tasks_exclude_each_other_and_queue_in_one_line(
    server: Server, client: redis.Redis
) -> None:
    threads = RedisLock(client, "both", ttl=10)

    async def wait_behind_a_thread() -> None:
        async with lock_on(server.port, "both", ttl=10) as lock:
            with held(threads) as lease:
                assert await lock.try_acquire() is None
                waiting = asyncio.create_task(lock.acquire(5))
                await until(lambda: _waits(lock))
                lease.release()
                mine = await waiting
            assert mine.fence > lease.fence  # type: ignore[operator]
            assert await mine.release() is Release.RELEASED

    asyncio.run(wait_behind_a_thread())


def test_a_decorated_coroutine_holds_the_lock_while_it_runs_and_nothing_else_is_decorated(
    server: Server,
) -> None:
    async def main() -> None:
        async with lock_on(server.port) as lock:

            @lock.hold(wait=5)
            async def twice(number: int) -> int:
                assert await lock.locked()
                return 2 * number

            assert await asyncio.gather(*(twice(n) for n in range(5))) == [0, 2, 4, 6, 8]
            assert await is_free(lock)

            def plain() -> None: ...
            def generator() -> Any:
                yield

            async def asynchronous_generator() -> Any:
                yield

            for function in (plain, generator, asynchronous_generator):
                with pytest.raises(TypeError, match=r"async with lock\.hold"):
                    lock.hold(wait=5)(function)

    asyncio.run(main())


def test_other_kinds_of_client_are_refused_with_a_way_out(client: redis.Redis) -> None:
    with pytest.raises(TypeError, match=r"needs a redis\.asyncio\.Redis"):
        AsyncRedisLock(client, "x", ttl=1)
    with pytest.raises(ValueError, match="ttl"):
        AsyncRedisLock(redis.asyncio.Redis(), "x", ttl=0)


def test_a_thousand_tasks_share_three_connections(own_server: Server) -> None:
    async def main() -> None:
        async with lock_on(own_server.port, ttl=30) as lock:
            async with lock.hold(wait=5):
                tasks = [asyncio.create_task(_once(lock)) for _ in range(1000)]
                await until(lambda: _waits(lock, 1000), within=20)
                own = own_server.client().client_list()
                assert len([each for each in own if each["addr"]]) <= 4  # one is the admin's
            await asyncio.gather(*tasks)

    asyncio.run(main())


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
            proxy.cut_reply_to(b"EVALSHA")
            with pytest.raises(LockBackendError):
                await lock.acquire(5)
            await until(lambda: is_free(lock), within=3)
            lease = await lock.acquire(5)
            proxy.cut_reply_to(b"EVALSHA")
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
            proxy.refuse_next()
            assert await lease.release() is Release.UNKNOWN
            await until(lambda: _is(not near.locked()))

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
            await until(lambda: _is(lost == [LossReason.EXPIRED]))
            assert await lease.release() is Release.EXPIRED
            await (await lock.acquire(2)).release()

    asyncio.run(main())


def test_a_demoted_master_is_left_after_its_first_refusal(own_server: Server) -> None:
    admin = own_server.client()

    async def main() -> None:
        async with lock_on(own_server.port) as lock:
            here = await lock._here()
            lease = await lock.acquire(1)
            waiting = asyncio.create_task(lock.acquire(10))
            await until(lambda: _waits(lock))
            channel = here.wakeups.waiters.channel
            admin.replicaof("127.0.0.1", "1")
            with pytest.raises(LockBackendError, match="read only replica"):
                await AsyncRedisLock(lock.client, "another", ttl=10).acquire(0)
            admin.replicaof("no", "one")
            await until(lambda: _is(_listens_elsewhere(here, channel)))
            await lease.release()
            await (await waiting).release()

    asyncio.run(main())


def test_a_forgotten_lease_is_not_renewed(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with lock_on(server.port, ttl=0.3) as lock:
            await lock.acquire(1)
            gc.collect()
            await until(lambda: is_free(lock), within=2)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())


def test_a_lease_belongs_to_its_loop(server: Server) -> None:
    lock = AsyncRedisLock(redis.asyncio.Redis(port=server.port), "other loop", ttl=0.2)

    async def take() -> AsyncLease:
        return await lock.acquire(1)

    lease = asyncio.run(take())
    with pytest.raises(Exception, match="another event loop"):
        asyncio.run(lease.release())


def test_connections_end_with_the_client(own_server: Server) -> None:
    admin = own_server.client()

    async def main() -> None:
        before = len(admin.client_list())
        client = redis.asyncio.Redis(port=own_server.port)
        async with AsyncRedisLock(client, "ends", ttl=1).hold(wait=1):
            pass
        assert len(admin.client_list()) > before
        await client.aclose()
        del client
        gc.collect()
        await until(lambda: _is(len(admin.client_list()) == before))

    asyncio.run(main())


PROGRAM = """
import asyncio, gc, sys, warnings
import redis.asyncio
from {locks} import AsyncRedisLock

lock = AsyncRedisLock(redis.asyncio.Redis(port={port}), "module-global", ttl=1)

async def main():
    async with lock.hold(wait=5) as lease:
        others = [asyncio.create_task(lock.acquire(5)) for _ in range(3)]
        await asyncio.sleep(0.4)
    for other in others:
        await (await other).release()
    asyncio.create_task(lock.acquire(5))  # and left to asyncio.run
    await asyncio.sleep(0)

for _ in range(2):
    asyncio.run(main(), debug=True)
    gc.collect()
print("done")
"""


def test_a_program_ends_without_a_warning_and_without_a_task_left_over(server: Server) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "error",
            "-c",
            PROGRAM.format(locks=LOCKS, port=server.port),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "done\n", done.stderr
    noise = [line for line in done.stderr.splitlines() if "Executing <" not in line]
    assert noise == []
    with redis.Redis(port=server.port) as client:
        eventually(lambda: not RedisLock(client, "module-global", ttl=1).locked(), within=3)


async def _once(lock: AsyncRedisLock) -> None:
    async with lock.hold(wait=60):
        pass


async def _waits(lock: AsyncRedisLock, waiters: int = 1) -> bool:
    return len((await lock.inspect()).waiters) == waiters


async def _is(value: bool) -> bool:
    return value


def _listens_elsewhere(here: Any, channel: bytes) -> bool:
    waiters = here.wakeups.waiters
    return bool(waiters.listening and waiters.channel != channel)
