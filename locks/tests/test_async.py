"""What is particular to asyncio: loops, clients, tasks. See also contract/."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Any

import pytest
import redis
import redis.asyncio

from .. import AsyncLease, AsyncRedisLock, LockNotHeld, RedisLock
from ..aio import wakeups
from ..aio.connections import AsyncConnections
from ..connection import Address
from ..testing.process import LOCKS
from ..testing.server import Server, eventually
from .looped import is_free, lock_on
from .stepping import is_so, until, waits
from .waiting import run


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


def test_a_thousand_tasks_share_three_connections(own_server: Server) -> None:
    async def main() -> None:
        async with lock_on(own_server.port, ttl=30) as lock:
            async with lock.hold(wait=5):
                tasks = [asyncio.create_task(_once(lock)) for _ in range(1000)]
                await until(lambda: waits(lock, 1000), within=20)
                own = own_server.client().client_list()
                assert len([each for each in own if each["addr"]]) <= 4  # one is the admin's
            await asyncio.gather(*tasks)

    asyncio.run(main())


@pytest.mark.parametrize("use", ["release", "owned", "extend", "hand_over"])
def test_a_lease_belongs_to_its_loop(server: Server, use: str) -> None:
    lock = AsyncRedisLock(redis.asyncio.Redis(port=server.port), "other loop", ttl=0.2)

    async def take() -> AsyncLease:
        return await lock.acquire(1)

    lease = asyncio.run(take())
    arguments = [1.0] if use == "extend" else []
    with pytest.raises(LockNotHeld, match="another event loop"):
        asyncio.run(getattr(lease, use)(*arguments))


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
        await until(lambda: is_so(len(admin.client_list()) == before))

    asyncio.run(main())


async def verified_slowly(*_: object) -> None:
    """AsyncWakeUps._verify, as where it closes a connection of its own."""
    try:
        await asyncio.Event().wait()
    finally:
        for _turn in range(20):
            await asyncio.sleep(0)


@pytest.mark.parametrize("still_verifying", [False, True])
def test_no_connection_stays_open_when_client_and_loop_end_at_once(
    own_server: Server, monkeypatch: pytest.MonkeyPatch, still_verifying: bool
) -> None:
    monkeypatch.setattr(wakeups, "PROBE", 0.02)
    if still_verifying:
        monkeypatch.setattr(wakeups.AsyncWakeUps, "_verify", verified_slowly)

    async def wait_until_it_is_verified() -> None:
        async with redis.asyncio.Redis(port=own_server.port) as client:
            lock = AsyncRedisLock(client, "both end", ttl=10)
            async with lock.hold(wait=1):
                other = asyncio.create_task(lock.acquire(5))
                wakes: Any = (await lock._here()).wakeups
                await until(lambda: is_so(wakes._verifying))
                if not still_verifying:
                    await wakes._verifying
            await (await other).release()

    async def main() -> None:
        await wait_until_it_is_verified()
        gc.collect()  # in the last turn of the loop: what ends now has to do without another one

    asyncio.run(main())
    gc.collect()  # warns of each connection that was left open


def test_connections_that_were_left_are_forgotten_once_they_are_closed(server: Server) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis(port=server.port, socket_timeout=1) as client:
            connections = AsyncConnections(Address(client.connection_pool))

            async def left() -> None:
                assert await connections.run("PING", within=1) == b"PONG"
                connections.leave()

            for _ in range(10):
                await left()
            await until(lambda: is_so(all(each.ended for each in connections._retired)), within=10)
            await left()
            assert len(connections._retired) <= 2
            await connections.aclose()

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
    program = PROGRAM.format(locks=LOCKS, port=server.port)
    said = run(sys.executable, "-X", "dev", "-W", "error", "-c", program)
    assert [line for line in said.splitlines() if "Executing <" not in line] == ["done"]
    with redis.Redis(port=server.port) as client:
        eventually(lambda: not RedisLock(client, "module-global", ttl=1).locked(), within=3)


async def _once(lock: AsyncRedisLock) -> None:
    async with lock.hold(wait=60):
        pass
