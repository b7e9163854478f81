"""The asyncio lock: event loops, clients, tasks and a silent server. See also contract/."""

import asyncio
import gc
import sys
import time
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio

from .. import AsyncLease, AsyncRedisLock, LockBackendError, LockNotHeld, RedisLock
from ..aio import wakeups
from ..aio.connections import AsyncConnections
from ..clock import now
from ..connection import Address
from ..sans_io.protocol import WireError, pack_command
from ..testing.server import LoopbackProxy, Server, eventually
from .looped import has_waiters, is_free, lock_on, looped, wait_until
from .waiting import LOCKS_PACKAGE, run_program


@looped
async def test_decorated_coroutine_holds_the_lock_while_it_runs(
    server: Server,
) -> None:
    """Other functions are refused as decorated functions."""
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


@looped
async def test_thousand_tasks_share_three_connections(own_server: Server) -> None:
    async with lock_on(own_server.port, ttl=30) as lock:
        async with lock.hold(wait=5):
            tasks = [asyncio.create_task(_hold_once(lock)) for _ in range(1000)]
            await wait_until(lambda: has_waiters(lock, 1000), within=20)
            connections = own_server.client().client_list()
            connected = [connection for connection in connections if connection["addr"]]
            assert len(connected) <= 4  # the fourth is that of this query
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("use", ["release", "owned", "extend", "hand_over"])
def test_lease_is_refused_in_another_event_loop(server: Server, use: str) -> None:
    lock = AsyncRedisLock(redis.asyncio.Redis(port=server.port), "other loop", ttl=0.2)

    async def take() -> AsyncLease:
        return await lock.acquire(1)

    lease = asyncio.run(take())
    arguments = [1.0] if use == "extend" else []
    with pytest.raises(LockNotHeld, match="another event loop"):
        asyncio.run(getattr(lease, use)(*arguments))


@looped
async def test_connections_end_with_the_client(own_server: Server) -> None:
    admin = own_server.client()
    before = len(admin.client_list())
    client = redis.asyncio.Redis(port=own_server.port)
    async with AsyncRedisLock(client, "ends", ttl=1).hold(wait=1):
        pass
    assert len(admin.client_list()) > before
    await client.aclose()
    del client
    gc.collect()
    await wait_until(lambda: len(admin.client_list()) == before)


async def verify_slowly(*_: object) -> None:
    """Replace AsyncWakeUps._verify by one that takes 20 turns of the loop to end."""
    try:
        await asyncio.Event().wait()
    finally:
        for _turn in range(20):
            await asyncio.sleep(0)


@pytest.mark.parametrize("still_verifying", [False, True])
def test_no_connection_outlives_client_and_loop(
    own_server: Server, monkeypatch: pytest.MonkeyPatch, still_verifying: bool
) -> None:
    """The client and its loop end at the same time."""
    monkeypatch.setattr(wakeups, "PROBE_SECONDS", 0.02)
    if still_verifying:
        monkeypatch.setattr(wakeups.AsyncWakeUps, "_verify", verify_slowly)

    async def wait_for_lock() -> None:
        """Let a waiter cause a verification of the subscription; end after it or during it."""
        async with redis.asyncio.Redis(port=own_server.port) as client:
            lock = AsyncRedisLock(client, "both end", ttl=10)
            async with lock.hold(wait=1):
                other = asyncio.create_task(lock.acquire(5))
                wakes: Any = (await lock._here()).wakeups
                await wait_until(lambda: wakes._verifying)  # the task that verifies it
                if not still_verifying:
                    await wakes._verifying
            await (await other).release()

    async def main() -> None:
        await wait_for_lock()
        gc.collect()  # the last turn of the loop: the cleanup cannot wait for another one

    asyncio.run(main())
    gc.collect()  # an open connection would be reported as a ResourceWarning


@looped
async def test_closed_connections_are_forgotten(
    server: Server,
) -> None:
    """Connections that leave() gives up do not accumulate."""
    async with redis.asyncio.Redis(port=server.port, socket_timeout=1) as client:
        connections = AsyncConnections(Address(client.connection_pool))

        async def leave_connection() -> None:
            assert await connections.run("PING", within=1) == b"PONG"
            connections.leave()

        for _ in range(10):
            await leave_connection()
        await wait_until(
            lambda: all(connection.ended for connection in connections._connections), within=10
        )
        await leave_connection()
        assert len(connections._connections) == 1
        await connections.aclose()


PROGRAM = """
import asyncio, gc, sys, warnings
import redis.asyncio
from {locks} import AsyncRedisLock

lock = AsyncRedisLock(redis.asyncio.Redis(port={port}), "module-global", ttl=1)

async def main():
    async with lock.hold(wait=5) as lease:
        waiters = [asyncio.create_task(lock.acquire(5)) for _ in range(3)]
        await asyncio.sleep(0.4)
    for waiter in waiters:
        await (await waiter).release()
    asyncio.create_task(lock.acquire(5))  # asyncio.run cancels it
    await asyncio.sleep(0)

for _ in range(2):
    asyncio.run(main(), debug=True)
    gc.collect()
print("done")
"""


def test_program_ends_without_warnings_or_tasks(server: Server) -> None:
    program = PROGRAM.format(locks=LOCKS_PACKAGE, port=server.port)
    output = run_program(sys.executable, "-X", "dev", "-W", "error", "-c", program)
    assert [line for line in output.splitlines() if "Executing <" not in line] == ["done"]
    with redis.Redis(port=server.port) as client:
        eventually(lambda: not RedisLock(client, "module-global", ttl=1).locked(), within=3)


async def _hold_once(lock: AsyncRedisLock) -> None:
    async with lock.hold(wait=60):
        pass


@looped
async def test_command_on_a_closed_connection_fails_at_once(proxy: LoopbackProxy) -> None:
    async with lock_on(proxy.port) as lock:
        assert not await lock.locked()
        line: Any = (await lock._here()).connections.current_connection
        proxy.cut()
        await wait_until(lambda: line.ended)
        with pytest.raises(WireError) as failed:
            await asyncio.wait_for(line.submit(pack_command("PING")), 3)
        assert not failed.value.sent


@looped
async def test_silent_server_does_not_stop_a_loop_of_thousands(
    proxy: LoopbackProxy,
) -> None:
    """Ten thousand waiters give up; none of them looks at all the others."""
    proxy.black_hole()
    client = redis.asyncio.Redis(port=proxy.port)
    lock = AsyncRedisLock(client, "silent", ttl=30)
    waiting = [asyncio.create_task(lock.acquire(0.5)) for _ in range(10_000)]
    longest_turn_seconds = 0.0
    before = time.thread_time()
    while not all(task.done() for task in waiting):
        await asyncio.sleep(0.001)
        longest_turn_seconds = max(longest_turn_seconds, time.thread_time() - before)
        before = time.thread_time()
    assert {type(task.exception()) for task in waiting} == {LockBackendError}
    print(f"the loop stood still for {longest_turn_seconds:.2f} s")
    # In processor seconds: 0.8 to 1.8, or 2.6 if each waiter looked at all others.
    assert longest_turn_seconds < 2.2
    await client.aclose()


def test_adoption_cancelled_at_the_loops_end_is_given_back(
    client: redis.Redis, server: Server
) -> None:
    near_lock = RedisLock(client, "adopted late", ttl=30)
    handed = near_lock.acquire(1).hand_over()

    async def main() -> None:
        lock = AsyncRedisLock(redis.asyncio.Redis(port=server.port), "adopted late", ttl=30)
        assert await lock.locked()
        adopting = asyncio.create_task(lock.adopt(handed))
        await asyncio.sleep(0)
        adopting.cancel()
        with suppress(asyncio.CancelledError):
            await adopting

    asyncio.run(main())
    assert not near_lock.locked()


def test_task_keeps_its_lease_while_it_cleans_up(server: Server) -> None:
    """asyncio.run cancels all tasks when main has ended, including the one that renews."""
    losses: list[bool] = []

    async def hold_until_cancelled(lock: AsyncRedisLock) -> None:
        async with lock.hold(wait=1) as lease:
            try:
                await asyncio.sleep(30)
            finally:
                await asyncio.sleep(1.0)
                losses.append(lease.lost)

    async def main() -> None:
        client = redis.asyncio.Redis(port=server.port)
        task = asyncio.create_task(
            hold_until_cancelled(AsyncRedisLock(client, "cleans up", ttl=0.4))
        )
        await asyncio.sleep(0.5)
        assert not task.done()

    loop = asyncio.new_event_loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert losses == [False]
    assert asyncio.all_tasks(loop) == set()


def test_unanswered_release_leaves_no_task_behind(
    proxy: LoopbackProxy,
) -> None:
    """The watchdog, which would repeat the release, is closed with the loop."""

    async def main() -> None:
        lock = AsyncRedisLock(redis.asyncio.Redis(port=proxy.port), "ends unheard", ttl=1)
        lease = await lock.acquire(1)
        proxy.black_hole()
        lease.start_release()

    loop = asyncio.new_event_loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert asyncio.all_tasks(loop) == set()


@looped
async def test_cancelled_close_still_closes_everything(
    proxy: LoopbackProxy,
) -> None:
    """asyncio.run cancels the closing task too, if the client was dropped as main ended."""
    client = redis.asyncio.Redis(port=proxy.port)
    lock = AsyncRedisLock(client, "ends cancelled", ttl=1)
    lease = await lock.acquire(1)
    resources: Any = await lock._here()
    await resources.wakeups.listen(now() + 1)
    proxy.black_hole()
    lease.start_release()  # a task waits for its reply
    line, link = resources.connections.current_connection, resources.wakeups._link
    closing = asyncio.ensure_future(resources.end.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing
    assert line.ended
    assert not link.is_open
