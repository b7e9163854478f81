"""A task that is cancelled at any of its awaits leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from .. import AsyncLease, AsyncRedisLock, LockLost, LockTimeout, LossReason, Release
from ..testing.server import Server
from .looped import is_free, lock_on
from .stepping import Stepped, until

#: More awaits than any of the scenarios has.
MOST = 60


def tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if not task.get_name().startswith("locks.")}


async def uncontended(lock: AsyncRedisLock) -> None:
    async with lock.hold(wait=5):
        await asyncio.sleep(0)


async def released_twice_if_cancelled(lock: AsyncRedisLock) -> None:
    lease = await lock.acquire(5)
    try:
        await lease.release()
    except asyncio.CancelledError:
        try:
            assert await lease.release() is Release.RELEASED
        except asyncio.CancelledError:
            raise AssertionError("cancelled once more, by itself") from None
        raise


Scenario = Callable[[AsyncRedisLock], Coroutine[Any, Any, None]]


async def fuzz(
    lock: AsyncRedisLock, scenario: Scenario, at: int, *, late: bool, held: bool
) -> bool:
    """Whether the scenario has so many awaits. `held`: somebody holds the lock at first."""
    asyncio.get_running_loop().set_exception_handler(_fail)
    before = tasks()
    holder = await lock.acquire(5) if held else None
    stepped = Stepped(scenario(lock), at, late=late)
    task = asyncio.create_task(stepped.run())
    if holder is not None:

        async def settled() -> bool:
            return task.done() or len((await lock.inspect()).waiters) == 1

        await until(settled)
        assert await holder.release() is Release.RELEASED
    with suppress(asyncio.CancelledError):
        async with asyncio.timeout(3):
            await task
    if stepped.fired:
        assert task.cancelled() or not late
    # What undoes it was sent before the exception was raised: one round trip, and it is undone.
    await until(lambda: is_free(lock), within=0.5)
    assert tasks() == before
    assert not (await _waiters(lock))
    async with lock.hold(wait=1) as lease:  # no reply of before is read by the next one
        state = await lock.inspect()
        assert state.owner == lease.token
        assert state.fence == lease.fence
    return stepped.fired


def _fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    raise AssertionError(context) from context.get("exception")


async def _waiters(lock: AsyncRedisLock) -> dict[bytes, Any]:
    return (await lock._here()).wakeups.waiters.mailboxes


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("scenario", [uncontended, released_twice_if_cancelled])
def test_a_task_cancelled_at_any_of_its_awaits_leaves_nothing_behind(
    server: Server, scenario: Scenario, held: bool, late: bool
) -> None:
    async def warm() -> int:
        async with lock_on(server.port) as lock:
            async with lock.hold(wait=5):
                with suppress(LockTimeout):
                    await lock.acquire(0.01)  # subscribed
            for at in range(1, MOST):
                if not await fuzz(lock, scenario, at, late=late, held=held):
                    return at
        raise AssertionError("more awaits than expected")

    assert asyncio.run(warm()) > 2


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_task_cancelled_while_it_connects_and_subscribes_leaves_nothing_behind(
    server: Server, late: bool
) -> None:
    async def cold(at: int) -> bool:
        async with lock_on(server.port) as lock, lock_on(server.port) as other:
            await other.locked()
            async with other.hold(wait=5):
                stepped = Stepped(uncontended(lock), at, late=late)
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


async def _queued(lock: AsyncRedisLock, task: asyncio.Task[Any]) -> bool:
    return task.done() or len((await lock.inspect()).waiters) == 1


def test_a_hold_that_is_used_again_after_a_loss_can_still_be_cancelled(server: Server) -> None:
    async def case() -> None:
        async with lock_on(server.port, ttl=30) as lock:
            hold = lock.hold(wait=5, cancel_on_loss=True)
            with pytest.raises(LockLost):  # noqa: PT012
                async with hold as lease:
                    asyncio.get_running_loop().call_soon(lease.mark_lost, LossReason.TAKEN)
                    await asyncio.sleep(5)
            entered = asyncio.Event()

            async def again() -> None:
                async with hold:
                    entered.set()
                    await asyncio.sleep(5)

            task = asyncio.create_task(again())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(case())


def test_an_outer_cancel_a_timeout_and_a_loss_are_distinguished(server: Server) -> None:
    async def cases() -> None:
        async with lock_on(server.port, ttl=0.6) as lock:
            # asyncio.timeout
            with pytest.raises(TimeoutError) as timed:
                async with asyncio.timeout(0.02), lock.hold(wait=5, cancel_on_loss=True):
                    await asyncio.sleep(5)
            assert not isinstance(timed.value, LockTimeout)
            assert await is_free(lock)

            # cancelled from outside
            entered = asyncio.Event()

            async def body(*, lost: bool) -> None:
                async with lock.hold(wait=5, cancel_on_loss=True) as lease:
                    entered.set()
                    try:
                        await asyncio.sleep(5)
                    finally:
                        assert lease.lost is lost

            task = asyncio.create_task(body(lost=False))
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()

            # lost
            entered.clear()
            task = asyncio.create_task(body(lost=True))
            await entered.wait()
            await lock.force_release()
            with pytest.raises(LockLost):
                await task

            # lost, and cancelled from outside before it could say so
            entered.clear()
            task = asyncio.create_task(body(lost=True))
            await entered.wait()
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
            assert [type(each) for each in grouped.value.exceptions] == [LockLost]

    asyncio.run(cases())


def _leases(here: Any) -> list[AsyncLease]:
    found = [renewal.lease() for renewal in here.watchdog.renewals.values()]
    return [lease for lease in found if isinstance(lease, AsyncLease)]
