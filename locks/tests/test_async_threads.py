"""Tests of AsyncRedisLock in several threads, in an ended event loop, and in a forked process."""

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


def test_two_new_loops_may_drop_an_old_loop_at_once(server: Server) -> None:
    """A web server may run each request in a thread with a new event loop.

    Here the lock was used in a loop that is closed now. Two requests notice this at the same time.
    """
    client = redis.asyncio.Redis(port=server.port)
    lock = AsyncRedisLock(client, "many loops", ttl=30)
    both_loops_check = threading.Barrier(2)

    class LoopThatWaitsWhenChecked(asyncio.SelectorEventLoop):
        waits_when_checked = False

        def is_closed(self) -> bool:
            is_main_thread = threading.current_thread() is threading.main_thread()
            if self.waits_when_checked and not is_main_thread:
                with suppress(threading.BrokenBarrierError):
                    both_loops_check.wait(0.5)
            return super().is_closed()

    async def acquire_once() -> None:
        await (await lock.acquire(5)).release()

    loop = LoopThatWaitsWhenChecked()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(acquire_once())
    loop.waits_when_checked = True
    for request in [run_in_thread(lambda: asyncio.run(acquire_once())) for _ in range(2)]:
        request.result(10)


@pytest.mark.parametrize("debug", [False, True])
def test_loss_noticed_in_a_worker_thread_cancels_the_block(server: Server, debug: bool) -> None:
    """Code in a worker thread, started by asyncio.to_thread(), checks the lease, which is lost.

    That cancels the block in the event loop, which raises LockLost. on_lost is called once.
    """
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
                await asyncio.to_thread(assert_lost, lease)
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


def assert_lost(lease: AsyncLease) -> None:
    """Check the lease, and fail unless that raises LockLost."""
    with pytest.raises(LockLost):
        lease.check()


def test_lease_checked_after_its_loop_ended_is_lost(server: Server) -> None:
    """The lease is checked after its event loop has ended. check() raises LockLost.

    `on_lost` cannot be called, because it would be called in that loop.
    """

    async def acquire() -> AsyncLease:
        async with open_lock(server.port, on_lost=lambda *_: None) as lock:
            return await lock.acquire(1)

    lease = asyncio.run(acquire())
    lease.deadline = 0.0  # as if it had passed
    assert_lost(lease)


@pytest.mark.parametrize(
    "waiting_command",
    [{"command": "start_task"}, {"command": "start_threads", "wait": 30, "count": 1}],
)
def test_fork_does_not_keep_a_dead_waiters_subscription(
    lock: RedisLock, start_worker: StartWorker, waiting_command: dict[str, Any]
) -> None:
    """A process with a waiter forks a child, and is killed. The child lives on.

    The child must close its copy of the subscription's connection. Otherwise the waiter would look
    alive and be given the lock, and the next waiter would have to wait for the ttl.
    """
    worker = start_worker()
    with hold_lock(lock) as lease:
        worker.run(**waiting_command, name=lock.name, ttl=30)
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
    """The process forks while the connection of a subscription is being opened.

    The child must close its copy of that connection, so that the subscription can end.
    """
    children: list[int] = []
    channels_before = set(server.make_client().pubsub_channels("lock:wake:*"))
    read_response = redis.asyncio.Connection.read_response

    def list_new_channels() -> set[Any]:
        return set(server.make_client().pubsub_channels("lock:wake:*")) - channels_before

    async def fork_and_read(self: Any, **options: Any) -> Any:
        if not children:
            children.append(os.fork())
            is_child = children[0] == 0
            if is_child:
                signal.pause()  # until this test kills the child
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
