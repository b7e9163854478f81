"""Tests of AsyncRedisLock: its event loops, clients, tasks and connections.

contract/ tests what it has in common with RedisLock.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Coroutine
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
from .event_loops import has_waiters, in_new_loop, is_free, open_lock, wait_until
from .waiting import LOCKS_PACKAGE, run_program


@in_new_loop
async def test_lock_decorates_coroutine_functions_only(server: Server) -> None:
    """A decorated coroutine function holds the lock while it runs. Other functions are refused."""
    async with open_lock(server.port) as lock:

        @lock.hold(wait=5)
        async def double(number: int) -> int:
            assert await lock.locked()
            return 2 * number

        assert await asyncio.gather(*(double(n) for n in range(5))) == [0, 2, 4, 6, 8]
        assert await is_free(lock)

        def plain() -> None: ...
        def generator() -> Any:
            yield

        async def asynchronous_generator() -> Any:
            yield

        for function in (plain, generator, asynchronous_generator):
            with pytest.raises(TypeError, match=r"async with lock\.hold"):
                lock.hold(wait=5)(function)


@in_new_loop
async def test_thousand_tasks_share_three_connections(own_server: Server) -> None:
    """A thousand tasks that wait for a lock do not open a connection each."""
    async with open_lock(own_server.port, ttl=30) as lock:
        async with lock.hold(wait=5):
            tasks = [asyncio.create_task(_acquire_and_release(lock)) for _ in range(1000)]
            await wait_until(lambda: has_waiters(lock, 1000), within=20)
            connections = own_server.make_client().client_list()
            open_connections = [connection for connection in connections if connection["addr"]]
            assert len(open_connections) <= 3 + 1  # and the connection of this query
        await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    "use_lease",
    [
        AsyncLease.release,
        AsyncLease.owned,
        lambda lease: lease.extend(1.0),
        AsyncLease.hand_over,
    ],
    ids=["release", "owned", "extend", "hand_over"],
)
def test_lease_is_refused_in_another_event_loop(
    server: Server, use_lease: Callable[[AsyncLease], Coroutine[Any, Any, object]]
) -> None:
    """The lease was acquired in a first event loop, which has ended."""
    lock = AsyncRedisLock(redis.asyncio.Redis(port=server.port), "other loop", ttl=0.2)

    async def acquire() -> AsyncLease:
        return await lock.acquire(1)

    lease = asyncio.run(acquire())
    with pytest.raises(LockNotHeld, match="another event loop"):
        asyncio.run(use_lease(lease))
    held_seconds = lease.held_seconds
    # held_seconds still grows. So the refused call has not recorded a release of the lease.
    eventually(lambda: lease.held_seconds > held_seconds)


@in_new_loop
async def test_connections_end_with_the_client(own_server: Server) -> None:
    """When the client is closed and garbage-collected, the lock's connections are closed, too."""
    admin = own_server.make_client()
    connections_before = len(admin.client_list())
    client = redis.asyncio.Redis(port=own_server.port)
    async with AsyncRedisLock(client, "ends", ttl=1).hold(wait=1):
        pass
    assert len(admin.client_list()) > connections_before
    await client.aclose()
    del client
    gc.collect()
    await wait_until(lambda: len(admin.client_list()) == connections_before)


async def verify_slowly(*_: object) -> None:
    """Wait until the task is cancelled, and end after 20 more iterations of the event loop.

    This function replaces AsyncWakeUps._verify().
    """
    try:
        await asyncio.Event().wait()
    finally:
        for _iteration in range(20):
            await asyncio.sleep(0)


@pytest.mark.parametrize("ends_while_verifying", [False, True])
def test_no_connection_outlives_client_and_loop(
    own_server: Server, monkeypatch: pytest.MonkeyPatch, ends_while_verifying: bool
) -> None:
    """The client and its event loop end at the same time, and all connections are closed.

    Before that, the subscription of a waiter was verified, or its verification still runs.
    """
    monkeypatch.setattr(wakeups, "PROBE_SECONDS", 0.02)
    if ends_while_verifying:
        monkeypatch.setattr(wakeups.AsyncWakeUps, "_verify", verify_slowly)

    async def wait_for_lock() -> None:
        """Let a waiter wait until its subscription is verified, or is being verified."""
        async with redis.asyncio.Redis(port=own_server.port) as client:
            lock = AsyncRedisLock(client, "both end", ttl=10)
            async with lock.hold(wait=1):
                waiter = asyncio.create_task(lock.acquire(5))
                lock_wakeups: Any = (await lock._get_resources()).wakeups
                await wait_until(lambda: lock_wakeups._verification)  # the verifying task
                if not ends_while_verifying:
                    await lock_wakeups._verification
            await (await waiter).release()

    async def main() -> None:
        await wait_for_lock()
        gc.collect()  # in the last iteration of the loop, so that no later one can clean up

    asyncio.run(main())
    gc.collect()  # an open connection would cause a ResourceWarning, which fails the test


@in_new_loop
async def test_closed_connections_are_forgotten(server: Server) -> None:
    """retire_all() closes the old connection, and removes it from the list of connections."""
    async with redis.asyncio.Redis(port=server.port, socket_timeout=1) as client:
        connections = AsyncConnections(Address(client.connection_pool))

        async def retire_connection() -> None:
            assert await connections.run("PING", timeout=1) == b"PONG"
            connections.retire_all()

        for _ in range(10):
            await retire_connection()
        await wait_until(
            lambda: all(connection.has_ended for connection in connections._connections), within=10
        )
        await retire_connection()
        assert len(connections._connections) == 1
        await connections.aclose()


#: Uses one lock in two event loops. Each loop ends while one of its tasks acquires the lock.
PROGRAM_WITH_TWO_LOOPS = """
import asyncio, gc
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
    """The program uses one lock in two event loops. Python turns warnings into errors."""
    program = PROGRAM_WITH_TWO_LOOPS.format(locks=LOCKS_PACKAGE, port=server.port)
    output = run_program(sys.executable, "-X", "dev", "-W", "error", "-c", program)
    # In its debug mode asyncio writes "Executing <...> took ..." on a busy machine.
    assert [line for line in output.splitlines() if "Executing <" not in line] == ["done"]
    with redis.Redis(port=server.port) as client:
        eventually(lambda: not RedisLock(client, "module-global", ttl=1).locked(), within=3)


async def _acquire_and_release(lock: AsyncRedisLock) -> None:
    async with lock.hold(wait=60):
        pass


@in_new_loop
async def test_command_on_a_closed_connection_fails_at_once(proxy: LoopbackProxy) -> None:
    """The server has closed the connection before the command is given to it."""
    async with open_lock(proxy.port) as lock:
        assert not await lock.locked()
        connection: Any = (await lock._get_resources()).connections.current_connection
        proxy.cut()
        await wait_until(lambda: connection.has_ended)
        with pytest.raises(WireError) as caught:
            await asyncio.wait_for(connection.submit(pack_command("PING")), 3)
        assert not caught.value.sent


@in_new_loop
async def test_silent_server_does_not_block_a_loop_with_many_waiters(proxy: LoopbackProxy) -> None:
    """Ten thousand waiters of one event loop time out at the same time.

    The loop is not blocked for long, because no waiter iterates over all others.
    """
    proxy.black_hole()
    client = redis.asyncio.Redis(port=proxy.port)
    lock = AsyncRedisLock(client, "silent", ttl=30)
    waiters = [asyncio.create_task(lock.acquire(0.5)) for _ in range(10_000)]
    longest_iteration_seconds = 0.0
    iteration_started = time.thread_time()
    while not all(waiter.done() for waiter in waiters):
        await asyncio.sleep(0.001)
        now_seconds = time.thread_time()
        longest_iteration_seconds = max(longest_iteration_seconds, now_seconds - iteration_started)
        iteration_started = now_seconds
    assert {type(waiter.exception()) for waiter in waiters} == {LockBackendError}
    print(f"the longest iteration of the loop took {longest_iteration_seconds:.2f} s")
    # Measured: 0.8 to 1.8 s of processor time; 2.6 s if each waiter iterates over all others.
    assert longest_iteration_seconds < 2.2
    await client.aclose()


def test_adoption_cancelled_at_the_loops_end_is_released(
    client: redis.Redis, server: Server
) -> None:
    """An adoption is cancelled, and its event loop ends just after that.

    The server has executed the adoption, so the lock must be released.
    """
    direct_lock = RedisLock(client, "adopted late", ttl=30)
    handover = direct_lock.acquire(1).hand_over()

    async def main() -> None:
        lock = AsyncRedisLock(redis.asyncio.Redis(port=server.port), "adopted late", ttl=30)
        assert await lock.locked()  # opens the connection
        adoption = asyncio.create_task(lock.adopt(handover))
        await asyncio.sleep(0)
        adoption.cancel()
        with suppress(asyncio.CancelledError):
            await adoption

    asyncio.run(main())
    assert not direct_lock.locked()


def test_task_keeps_its_lease_while_it_cleans_up(server: Server) -> None:
    """A task is cancelled at the end of the event loop, and cleans up for longer than the ttl.

    asyncio.run() cancels all tasks at its end. The watchdog's task, which renews the lease, must go
    on until the other tasks have ended.
    """
    losses: list[bool] = []

    async def hold_until_cancelled(lock: AsyncRedisLock) -> None:
        async with lock.hold(wait=1) as lease:
            try:
                await asyncio.sleep(30)
            finally:
                await asyncio.sleep(1.0)  # longer than the ttl, so the lease must be renewed
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


def test_unanswered_release_leaves_no_task_behind(proxy: LoopbackProxy) -> None:
    """The event loop ends while a release waits for its reply.

    The watchdog, which repeats such a release, must end with the loop.
    """

    async def main() -> None:
        lock = AsyncRedisLock(redis.asyncio.Redis(port=proxy.port), "unanswered", ttl=1)
        lease = await lock.acquire(1)
        proxy.black_hole()
        lease.start_release()

    loop = asyncio.new_event_loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert asyncio.all_tasks(loop) == set()


@in_new_loop
async def test_cancelled_close_still_closes_everything(proxy: LoopbackProxy) -> None:
    """The task that closes the locks of a dropped client is cancelled, as at the end of a loop.

    All connections are closed nevertheless. (asyncio.run() cancels all tasks at its end.)
    """
    client = redis.asyncio.Redis(port=proxy.port)
    lock = AsyncRedisLock(client, "cancelled close", ttl=1)
    lease = await lock.acquire(1)
    resources: Any = await lock._get_resources()
    await resources.wakeups.listen(now() + 1)
    proxy.black_hole()
    lease.start_release()  # starts a task, which waits for the reply
    connection = resources.connections.current_connection
    subscription_link = resources.wakeups._link
    close_task = asyncio.ensure_future(resources.closing_generator.aclose())
    await asyncio.sleep(0)
    close_task.cancel()
    with suppress(asyncio.CancelledError):
        await close_task
    assert connection.has_ended
    assert not subscription_link.is_open


@in_new_loop
async def test_connection_outlives_a_timeout_while_it_opens(proxy: LoopbackProxy) -> None:
    """A command times out while its connection opens. The next command uses that connection."""
    proxy.delay(600)  # until pass_on()
    async with redis.asyncio.Redis(port=proxy.port, client_name="slow", db=1) as client:
        connections = AsyncConnections(Address(client.connection_pool))
        opening_connection = connections.current_connection
        with pytest.raises(WireError, match="in time") as caught:
            await connections.run("PING", timeout=0.01)
        assert not caught.value.sent
        assert connections.current_connection is opening_connection
        assert not opening_connection._outbox
        reply = connections.run("PING", timeout=5)
        proxy.pass_on()
        assert await reply == b"PONG"
        await connections.aclose()
