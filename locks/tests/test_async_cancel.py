"""A task cancelled at any of its awaits leaves nothing behind; and a loss ends its block."""

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
from .looped import Make, Stepped, is_free, lock_on, locks_on, looped, until, waits

#: More awaits than any of the scenarios has.
MOST = 60
#: The lock that another holder may have, and those that are taken before it and after it.
TESTED, OTHERS = "tested", ("a first one", "the last one")


def tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if not task.get_name().startswith("locks.")}


async def uncontended(make: Make) -> None:
    async with make(TESTED).hold(wait=5):
        await asyncio.sleep(0)


async def released_twice_if_cancelled(make: Make) -> None:
    lease: AsyncLease = await make(TESTED).acquire(5)
    try:
        await lease.release()
    except asyncio.CancelledError:
        try:
            assert await lease.release() is Release.RELEASED
        except asyncio.CancelledError:
            raise AssertionError("cancelled once more, by itself") from None
        raise


async def several(make: Make) -> None:
    """Hold several locks as ASYNCIO.md does."""
    async with AsyncExitStack() as stack:
        for name in sorted((TESTED, *OTHERS)):
            await stack.enter_async_context(make(name).hold(wait=5))


Scenario = Callable[[Make], Coroutine[Any, Any, None]]


async def fuzz(make: Make, scenario: Scenario, at: int, *, late: bool, held: bool) -> bool:
    """Return whether the scenario has this many awaits. `held`: the lock is held at first."""
    asyncio.get_running_loop().set_exception_handler(_fail)
    before, lock = tasks(), make(TESTED)
    holder = await lock.acquire(5) if held else None
    stepped = Stepped(scenario(make), at, late=late)
    task = asyncio.create_task(stepped.run())
    if holder is not None:
        await until(lambda: _queued(lock, task))
        assert await holder.release() is Release.RELEASED
    with suppress(asyncio.CancelledError):
        async with asyncio.timeout(3):
            await task
    if stepped.fired:
        assert task.cancelled() or not late
    # What undoes it was sent before the exception was raised: one round trip, and it is undone.
    await until(lambda: is_free(lock, *map(make, OTHERS)), within=0.5)
    assert tasks() == before
    assert not (await lock._here()).wakeups.waiters.mailboxes
    async with lock.hold(wait=1) as lease:  # no reply of before is read by the next one
        state = await lock.inspect()
        assert state.owner == lease.token
        assert state.fence == lease.fence
    return stepped.fired


def _fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    raise AssertionError(context) from context.get("exception")


async def _queued(lock: AsyncRedisLock, task: asyncio.Task[Any]) -> bool:
    return task.done() or await waits(lock)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("scenario", [uncontended, released_twice_if_cancelled, several])
@looped
async def test_task_cancelled_at_any_await_leaves_nothing(
    server: Server, scenario: Scenario, held: bool, late: bool
) -> None:
    async with locks_on(server.port) as make:
        async with make(TESTED).hold(wait=5):
            with suppress(LockTimeout):
                await make(TESTED).acquire(0.01)  # subscribed
        for at in range(1, MOST):
            if not await fuzz(make, scenario, at, late=late, held=held):
                assert at > 2
                return
    raise AssertionError("more awaits than expected")


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_task_cancelled_while_it_subscribes_leaves_nothing(server: Server, late: bool) -> None:
    """It is cancelled at each await of connecting and subscribing."""

    async def cold(at: int) -> bool:
        async with locks_on(server.port) as make, lock_on(server.port) as other:
            await other.locked()
            async with other.hold(wait=5):
                stepped = Stepped(uncontended(make), at, late=late)
                task = asyncio.create_task(stepped.run())
                await until(lambda: _queued(other, task))
            await asyncio.wait({task})
            await until(lambda: is_free(other), within=0.5)
            return stepped.fired

    for at in range(1, MOST):
        if not asyncio.run(cold(at)):
            assert at > 3
            return
    raise AssertionError("more awaits than expected")


@looped
async def test_cancellation_timeout_and_loss_are_distinguished(server: Server) -> None:
    async with lock_on(server.port, ttl=0.6) as lock:
        # asyncio.timeout
        with pytest.raises(TimeoutError) as timed:
            async with asyncio.timeout(0.02), lock.hold(wait=5, cancel_on_loss=True):
                await asyncio.sleep(5)
        assert not isinstance(timed.value, LockTimeout)
        assert await is_free(lock)

        # lost
        hold = lock.hold(wait=5, cancel_on_loss=True)  # used again below
        entered = asyncio.Event()

        async def begun(*, lost: bool) -> asyncio.Task[None]:
            entered.clear()
            task = asyncio.create_task(body(lost=lost))
            await entered.wait()
            return task

        async def body(*, lost: bool) -> None:
            async with hold as lease:
                entered.set()
                try:
                    await asyncio.sleep(5)
                finally:
                    assert lease.lost is lost

        task = await begun(lost=True)
        await lock.force_release()
        with pytest.raises(LockLost):
            await task

        # cancelled from outside
        task = await begun(lost=False)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

        # lost, and cancelled from outside before it could say so
        task = await begun(lost=True)
        lease = next(iter(_leases(await lock._here())))
        await lock.force_release()
        lease._on_lost = lambda *_: None
        lease.mark_lost(LossReason.TAKEN)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1

        # in a task group: the loss ends the group, not the program
        async def group() -> None:
            async with asyncio.TaskGroup() as members:
                entered.clear()
                members.create_task(body(lost=True))
                members.create_task(asyncio.sleep(5))
                await entered.wait()
                await lock.force_release()

        with pytest.raises(ExceptionGroup) as grouped:
            await group()
        assert [type(error) for error in grouped.value.exceptions] == [LockLost]


def _leases(resources: Any) -> list[AsyncLease]:
    leases = [renewal.lease() for renewal in resources.watchdog.renewals.values()]
    return [lease for lease in leases if isinstance(lease, AsyncLease)]


@looped
async def test_lost_release_is_sent_by_the_second_call(
    proxy: LoopbackProxy,
) -> None:
    async with locks_on(proxy.port) as make:
        lease = await make("first").acquire(1)
        shared: Any = await make("first")._here()
        shared.watchdog.abandon = lambda *_: None  # else it would release them as well
        proxy.black_hole()
        line = shared.connections.current_connection
        releasing = asyncio.create_task(lease.release())
        await asyncio.sleep(0.05)
        line._link.close()
        assert await releasing is Release.UNKNOWN
        proxy.pass_on()
        assert await lease.release() is Release.RELEASED


@looped
async def test_end_of_the_wait_cancels_no_task(server: Server) -> None:
    """asyncio.timeout cancels the task, and before Python 3.11.3 it says CancelledError, not
    TimeoutError, in a task that cleans up after it was cancelled."""
    cancels = 0

    class Cancelled(asyncio.Task[Any]):
        def cancel(self, msg: object = None) -> bool:
            nonlocal cancels
            cancels += 1
            return super().cancel(msg)

    async def clean_up(lock: AsyncRedisLock) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            await lock.acquire(0.05)

    async with lock_on(server.port) as lock, lock.hold(wait=5):
        task = Cancelled(clean_up(lock))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(LockTimeout):
            await task
        assert cancels == 1
