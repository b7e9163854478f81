"""Tests of AsyncRedisLock with cancelled tasks. They leave no lock, waiter or task behind.

A scenario is a coroutine function that uses a lock. The tests cancel it at each of its awaits.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from .. import (
    AsyncLease,
    AsyncRedisLock,
    LockLost,
    LockTimeout,
    LossReason,
    Release,
)
from ..testing.server import LoopbackProxy, Server
from .event_loops import (
    CancellingRun,
    MakeLock,
    has_waiters,
    in_new_loop,
    is_free,
    open_lock,
    open_lock_maker,
    wait_until,
)

#: More than the number of awaits of each scenario.
MAX_AWAITS = 60
#: The name of the lock that all scenarios use. Another holder may have it at first.
TESTED_NAME = "tested"
#: The names of the locks that acquire_several() acquires before that lock and after it.
OTHER_NAMES = ("a lock before", "the lock after")


def find_tasks() -> set[asyncio.Task[Any]]:
    """Return the running tasks, except the tasks that locks share, such as the watchdog's."""
    return {task for task in asyncio.all_tasks() if not task.get_name().startswith("locks.")}


async def acquire_and_release(make_lock: MakeLock) -> None:
    """Hold a lock for a short time."""
    async with make_lock(TESTED_NAME).hold(wait=5):
        await asyncio.sleep(0)


async def release_again_if_cancelled(make_lock: MakeLock) -> None:
    """Release a lock. If that is cancelled, call release() again, which must succeed."""
    lease: AsyncLease = await make_lock(TESTED_NAME).acquire(5)
    try:
        await lease.release()
    except asyncio.CancelledError:
        try:
            assert await lease.release() is Release.RELEASED
        except asyncio.CancelledError:
            raise AssertionError("the second release was cancelled, too") from None
        raise


async def acquire_several(make_lock: MakeLock) -> None:
    """Hold several locks at the same time, as in an example in ASYNCIO.md."""
    async with AsyncExitStack() as stack:
        for name in sorted((TESTED_NAME, *OTHER_NAMES)):
            await stack.enter_async_context(make_lock(name).hold(wait=5))


Scenario = Callable[[MakeLock], Coroutine[Any, Any, None]]


async def cancel_at(
    make_lock: MakeLock,
    scenario: Scenario,
    await_number: int,
    *,
    after_result: bool,
    is_taken: bool,
) -> bool:
    """Cancel the scenario at one of its awaits, and check that it leaves nothing behind.

    Args:
        make_lock: Makes the locks.
        scenario: A coroutine function that uses the locks.
        await_number: The number of the await at which it is cancelled, from 1.
        after_result: Whether to cancel it after the awaited future is done, as in CancellingRun.
        is_taken: Whether the lock has another holder at first, until the scenario waits for it.

    Returns:
        Whether the scenario was cancelled. False: it has fewer awaits than `await_number`.
    """
    asyncio.get_running_loop().set_exception_handler(_raise_error)
    tasks_before = find_tasks()
    lock = make_lock(TESTED_NAME)
    first_lease = await lock.acquire(5) if is_taken else None
    cancelling_run = CancellingRun(scenario(make_lock), await_number, after_result=after_result)
    task = asyncio.create_task(cancelling_run.run())
    if first_lease is not None:
        await wait_until(lambda: _is_queued_or_done(lock, task))
        assert await first_lease.release() is Release.RELEASED
    with suppress(asyncio.CancelledError):
        async with asyncio.timeout(3):
            await task
    if cancelling_run.has_cancelled:
        assert task.cancelled() or not after_result
    # The lock is free soon, because the release was sent before CancelledError was raised.
    await wait_until(lambda: is_free(lock, *map(make_lock, OTHER_NAMES)), within=0.5)
    assert find_tasks() == tasks_before
    assert not (await lock._get_resources()).wakeups.waiters.mailboxes
    # The next commands must not read the reply to a command of the cancelled task.
    async with lock.hold(wait=1) as lease:
        inspection = await lock.inspect()
        assert inspection.owner == lease.token
        assert inspection.fence == lease.fence
    return cancelling_run.has_cancelled


def _raise_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle an error of the event loop by failing the test. By default it would be logged only."""
    raise AssertionError(context) from context.get("exception")


async def _is_queued_or_done(lock: AsyncRedisLock, task: asyncio.Task[Any]) -> bool:
    return task.done() or await has_waiters(lock)


@pytest.mark.parametrize("after_result", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("is_taken", [False, True], ids=["free", "taken"])
@pytest.mark.parametrize(
    "scenario", [acquire_and_release, release_again_if_cancelled, acquire_several]
)
@in_new_loop
async def test_task_cancelled_at_any_await_leaves_nothing(
    server: Server, scenario: Scenario, is_taken: bool, after_result: bool
) -> None:
    """Cancel each scenario at its first await, then at the second, and so on until its end."""
    async with open_lock_maker(server.port) as make_lock:
        async with make_lock(TESTED_NAME).hold(wait=5):
            with suppress(LockTimeout):
                await make_lock(TESTED_NAME).acquire(0.01)  # subscribes the client to its channel
        for await_number in range(1, MAX_AWAITS):
            if not await cancel_at(
                make_lock, scenario, await_number, after_result=after_result, is_taken=is_taken
            ):
                assert await_number > 2  # the scenario was cancelled at two awaits or more
                return
    raise AssertionError(f"the scenario has more than {MAX_AWAITS} awaits; raise MAX_AWAITS")


@pytest.mark.parametrize("after_result", [False, True], ids=["before", "after"])
def test_task_cancelled_while_it_subscribes_leaves_nothing(
    server: Server, after_result: bool
) -> None:
    """Cancel a task at each await at which its new client connects, subscribes and waits.

    `after_result` says whether the awaited future is done at the cancellation: see CancellingRun.
    """

    async def cancel_at_await(await_number: int) -> bool:
        """Cancel a task with a new client at this await. Return False if no such await came."""
        # second_lock is the same lock with another client.
        async with open_lock_maker(server.port) as make_lock, open_lock(server.port) as second_lock:
            await second_lock.locked()  # opens the connection of the other client
            async with second_lock.hold(wait=5):
                cancelling_run = CancellingRun(
                    acquire_and_release(make_lock), await_number, after_result=after_result
                )
                task = asyncio.create_task(cancelling_run.run())
                await wait_until(lambda: _is_queued_or_done(second_lock, task))
            await asyncio.wait({task})
            await wait_until(lambda: is_free(second_lock), within=0.5)
            return cancelling_run.has_cancelled

    for await_number in range(1, MAX_AWAITS):
        if not asyncio.run(cancel_at_await(await_number)):
            assert await_number > 3  # the task was cancelled at three awaits or more
            return
    raise AssertionError(f"the scenario has more than {MAX_AWAITS} awaits; raise MAX_AWAITS")


@in_new_loop
async def test_cancellation_timeout_and_loss_are_distinguished(server: Server) -> None:
    """A cancellation, a timeout of asyncio and a loss end the block with different exceptions."""
    async with open_lock(server.port, ttl=0.6) as lock:
        # A timeout of asyncio raises TimeoutError.
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.02), lock.hold(wait=5, cancel_on_loss=True):
                await asyncio.sleep(5)
        assert not isinstance(caught.value, LockTimeout)
        assert await is_free(lock)

        # The next cases start this block in a task, and end it in different ways.
        hold = lock.hold(wait=5, cancel_on_loss=True)
        entered = asyncio.Event()

        async def start_block(*, ends_by_loss: bool) -> asyncio.Task[None]:
            entered.clear()
            task = asyncio.create_task(run_block(ends_by_loss=ends_by_loss))
            await entered.wait()
            return task

        async def run_block(*, ends_by_loss: bool) -> None:
            async with hold as lease:
                entered.set()
                try:
                    await asyncio.sleep(5)
                finally:
                    assert lease.lost is ends_by_loss

        # A loss raises LockLost.
        task = await start_block(ends_by_loss=True)
        await lock.force_release()
        with pytest.raises(LockLost):
            await task

        # A cancellation by the program raises CancelledError.
        task = await start_block(ends_by_loss=False)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

        # A loss, and a cancellation by the program before LockLost is raised: CancelledError.
        task = await start_block(ends_by_loss=True)
        (lease,) = _list_leases(await lock._get_resources())
        await lock.force_release()
        lease._on_lost = lambda *_: None  # the callback must not change the outcome
        lease.mark_lost(LossReason.TAKEN)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1  # by the program; the cancellation by the loss was undone

        # A loss in a task group ends the group with an ExceptionGroup, like any exception.
        async def run_group() -> None:
            async with asyncio.TaskGroup() as group:
                entered.clear()
                group.create_task(run_block(ends_by_loss=True))
                group.create_task(asyncio.sleep(5))
                await entered.wait()
                await lock.force_release()

        with pytest.raises(ExceptionGroup) as caught_group:
            await run_group()
        assert [type(error) for error in caught_group.value.exceptions] == [LockLost]


def _list_leases(resources: Any) -> list[AsyncLease]:
    """Return the leases that the watchdog renews."""
    leases = [renewal.lease_ref() for renewal in resources.watchdog.renewals.values()]
    return [lease for lease in leases if isinstance(lease, AsyncLease)]


@in_new_loop
async def test_lost_release_is_sent_by_the_second_call(proxy: LoopbackProxy) -> None:
    """The request of the first release is lost with its connection. The second call succeeds."""
    async with open_lock_maker(proxy.port) as make_lock:
        lease = await make_lock("first").acquire(1)
        resources: Any = await make_lock("first")._get_resources()
        resources.watchdog.abandon = lambda *_: None  # do not repeat the release in the background
        proxy.black_hole()
        connection = resources.connections.current_connection
        release_task = asyncio.create_task(lease.release())
        await asyncio.sleep(0.05)  # until the command is sent into the black hole
        connection._link.close()
        assert await release_task is Release.UNKNOWN
        proxy.pass_on()
        assert await lease.release() is Release.RELEASED


@in_new_loop
async def test_end_of_the_wait_cancels_no_task(server: Server) -> None:
    """A wait that times out raises LockTimeout, and does not call task.cancel().

    asyncio.timeout() would cancel the task at the end of the wait. Before Python 3.11.3 that raised
    CancelledError instead of a timeout in a task that is cleaning up after a cancellation.
    """
    cancel_count = 0

    class CountingTask(asyncio.Task[Any]):
        def cancel(self, msg: object = None) -> bool:
            nonlocal cancel_count
            cancel_count += 1
            return super().cancel(msg)

    async def clean_up(lock: AsyncRedisLock) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            await lock.acquire(0.05)

    async with open_lock(server.port) as lock, lock.hold(wait=5):
        task = CountingTask(clean_up(lock))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(LockTimeout):
            await task
        assert cancel_count == 1  # only by this test, above
