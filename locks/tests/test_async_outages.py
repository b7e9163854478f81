"""AsyncRedisLock and a server that is silent, loses replies, is away or was demoted."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio

from .. import AsyncRedisLock, LockBackendError, RedisLock
from ..protocol import WireError, packed
from ..support import now
from ..testing.server import Proxy, Server
from .looped import lock_on
from .stepping import is_so, until

#: How a request begins that runs a script by its text.
AS_TEXT = b"$4\r\nEVAL\r\n"


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


def test_a_task_that_cleans_up_after_main_has_ended_keeps_its_lease(server: Server) -> None:
    """asyncio.run cancels all tasks then, that which renews included."""
    ended: list[bool] = []

    async def works(lock: AsyncRedisLock) -> None:
        async with lock.hold(wait=1) as lease:
            try:
                await asyncio.sleep(30)
            finally:
                await asyncio.sleep(1.0)
                ended.append(lease.lost)

    async def main() -> None:
        client = redis.asyncio.Redis(port=server.port)
        task = asyncio.create_task(works(AsyncRedisLock(client, "cleans up", ttl=0.4)))
        await asyncio.sleep(0.5)
        assert not task.done()

    loop = asyncio.new_event_loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert ended == [False]
    assert asyncio.all_tasks(loop) == set()


def test_no_task_is_left_where_a_release_gets_no_answer_before_its_loop_ends(proxy: Proxy) -> None:
    """What would repeat it is closed by then."""

    async def main() -> None:
        lock = AsyncRedisLock(redis.asyncio.Redis(port=proxy.port), "ends unheard", ttl=1)
        lease = await lock.acquire(1)
        proxy.black_hole()
        lease.start_release()

    loop = asyncio.new_event_loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert asyncio.all_tasks(loop) == set()


def test_everything_is_closed_where_the_task_that_closes_is_cancelled_too(proxy: Proxy) -> None:
    """asyncio.run cancels it with all others, if the client was forgotten as its main ended."""

    async def main() -> None:
        client = redis.asyncio.Redis(port=proxy.port)
        lock = AsyncRedisLock(client, "ends cancelled", ttl=1)
        lease = await lock.acquire(1)
        here: Any = await lock._here()
        await here.wakeups.listen(now() + 1)
        proxy.black_hole()
        lease.start_release()  # its reply is waited for
        line, link = here.connections.line, here.wakeups._link
        closing = asyncio.ensure_future(here.end.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        assert line.ended
        assert not link.is_open

    asyncio.run(main())
