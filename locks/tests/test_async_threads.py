"""A lease of asyncio in another thread, after the end of its loop, or in a forked child."""

import asyncio
import os
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio

from .. import AsyncLease, AsyncRedisLock, LockLost, LockTimeout, LossReason, RedisLock, Release
from ..testing.server import Server, eventually
from .event_loops import open_lock
from .waiting import StartWorker, count_subscribers, hold_lock, run_in_thread, wait_until_queued


def test_concurrent_loops_may_all_notice_a_closed_loop(server: Server) -> None:
    """The threads of a web server may run a new loop for each request.

    Here two threads check at the same time whether the loop that used the lock before is closed.
    """
    client = redis.asyncio.Redis(port=server.port)
    lock = AsyncRedisLock(client, "loop after loop", ttl=30)
    both_checked = threading.Barrier(2)

    class ObservedLoop(asyncio.SelectorEventLoop):
        is_observed = False

        def is_closed(self) -> bool:
            if self.is_observed and threading.current_thread() is not threading.main_thread():
                with suppress(threading.BrokenBarrierError):
                    both_checked.wait(0.5)
            return super().is_closed()

    async def acquire_once() -> None:
        await (await lock.acquire(5)).release()

    loop = ObservedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(acquire_once())
    loop.is_observed = True
    for request in [run_in_thread(lambda: asyncio.run(acquire_once())) for _ in range(2)]:
        request.result(10)


@pytest.mark.parametrize("debug", [False, True])
def test_loss_noticed_in_a_worker_thread_cancels_the_block(server: Server, debug: bool) -> None:
    """Code in asyncio.to_thread, such as a synchronous ORM, checks the lease. on_lost runs once."""
    losses: list[LossReason] = []

    async def main() -> None:
        client = redis.asyncio.Redis(port=server.port)
        lock = AsyncRedisLock(
            client, "checked elsewhere", ttl=30, on_lost=lambda _, reason: losses.append(reason)
        )
        leases: list[AsyncLease] = []

        async def work() -> None:
            async with lock.hold(wait=1, cancel_on_loss=True) as lease:
                leases.append(lease)
                lease.deadline = 0.0  # as if it had passed
                await asyncio.to_thread(expect_lost, lease)
                assert lease.loss is LossReason.EXPIRED
                await asyncio.Event().wait()  # the loss cancels this wait

        with pytest.raises(LockLost) as caught:
            await work()
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)
        assert leases[0].lost_event.is_set()
        await asyncio.sleep(0)
        assert losses == [LossReason.EXPIRED]
        await client.aclose()

    asyncio.run(main(), debug=debug)


def expect_lost(lease: AsyncLease) -> None:
    with pytest.raises(LockLost):
        lease.check()


def test_lease_checked_after_its_loop_ended_is_lost(server: Server) -> None:
    """The loss cannot call `on_lost` in that loop, but check() raises LockLost."""

    async def acquire() -> AsyncLease:
        async with open_lock(server.port, on_lost=lambda *_: None) as lock:
            return await lock.acquire(1)

    lease = asyncio.run(acquire())
    lease.deadline = 0.0  # as if it had passed
    expect_lost(lease)


@pytest.mark.parametrize(
    "waiting_command",
    [{"command": "start_task"}, {"command": "start_threads", "wait": 30, "count": 1}],
)
def test_fork_does_not_keep_a_dead_waiters_subscription(
    lock: RedisLock, start_worker: StartWorker, waiting_command: dict[str, Any]
) -> None:
    """A forked child's copy of the socket would keep the subscription of its dead parent.

    The lock would be handed to the dead waiter, and the next waiter would wait for a ttl.
    """
    worker = start_worker()
    with hold_lock(lock) as lease:
        worker.run(**waiting_command, name="tested", ttl=30)
        wait_until_queued(lock, 1)
        child = worker.run("fork_idle_child")
        try:
            worker.kill()
            eventually(lambda: count_subscribers(lock) == [0])
            assert lease.release() is Release.RELEASED
            lock.acquire(1).release()
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # with threads, since 3.12
def test_fork_while_subscribing_does_not_keep_the_subscription(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process forks while the new connection of a waiter reads its first reply."""
    children: list[int] = []
    other_channels = set(server.make_client().pubsub_channels("lock:wake:*"))
    read_response = redis.asyncio.Connection.read_response

    def list_new_channels() -> set[Any]:
        return set(server.make_client().pubsub_channels("lock:wake:*")) - other_channels

    async def fork_and_read(self: Any, **options: Any) -> Any:
        if not children:
            children.append(os.fork())
            if not children[0]:  # in the child, which lives until it is killed
                signal.pause()
        return await read_response(self, **options)

    async def main() -> None:
        async with open_lock(server.port) as lock, lock.hold(wait=1):
            monkeypatch.setattr(redis.asyncio.Connection, "read_response", fork_and_read)
            with pytest.raises(LockTimeout):
                await lock.acquire(0.2)
            assert list_new_channels()

    try:
        asyncio.run(main())
        assert children
        eventually(lambda: not list_new_channels())
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
