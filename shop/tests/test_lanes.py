"""The threads and the turnstile of an event loop that sells."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from shop.errors import Unavailable
from shop.ops.current import Facts, current, note
from shop.waiting.lanes import Lane
from shop.waiting.turnstile import Turnstile
from shop.web.intake import Intake


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


class Work:
    """A job that begins, and ends when it may."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.may_end = threading.Event()

    def __call__(self, number: int) -> int:
        self.begun.append(number)
        assert self.may_end.wait(20)
        return number


def test_a_lane_has_no_more_threads_than_it_may_and_keeps_the_order() -> None:
    async def test() -> None:
        lane, work = Lane("test", 2), Work()
        jobs = [asyncio.create_task(lane.run(work, number)) for number in range(6)]
        await _until(lambda: len(work.begun) == 2)
        assert sum(each.name.startswith("test-") for each in threading.enumerate()) == 2
        work.may_end.set()
        assert await asyncio.gather(*jobs) == list(range(6))
        assert sorted(work.begun[:2]) == [0, 1]
        assert sorted(work.begun) == list(range(6))

    run(test())


def test_a_job_that_is_cancelled_before_it_begins_is_never_made() -> None:
    async def test() -> None:
        lane, work = Lane("early", 1), Work()
        first = asyncio.create_task(lane.run(work, 1))
        await _until(lambda: work.begun)
        second = asyncio.create_task(lane.run(work, 2))
        await asyncio.sleep(0)  # it is in the queue
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        work.may_end.set()
        assert await first == 1
        assert await lane.run(lambda: 3) == 3
        assert work.begun == [1]

    run(test())


def test_a_job_that_is_cancelled_later_is_waited_for() -> None:
    """Its lock must not be released while it still writes, however often it is cancelled."""

    async def test() -> None:
        lane, work = Lane("late", 1), Work()
        job = asyncio.create_task(lane.run(work, 1))
        await _until(lambda: work.begun)
        for _ in range(3):
            job.cancel()
            await asyncio.sleep(0)
            assert not job.done()
        work.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await job

    run(test())


def test_a_node_that_stops_refuses_what_has_no_thread_yet() -> None:
    async def test() -> None:
        lane, work = Lane("stop", 1), Work()
        first = asyncio.create_task(lane.run(work, 1))
        await _until(lambda: work.begun)
        second = asyncio.create_task(lane.run(work, 2))
        await asyncio.sleep(0)
        lane.refuse_waiting()
        with pytest.raises(Unavailable):
            await second
        work.may_end.set()
        assert await first == 1
        assert work.begun == [1]

    run(test())


def test_an_error_of_a_job_is_the_callers_and_its_request_is_known_in_the_thread() -> None:
    def fail() -> None:
        note(outcome="noted")
        raise KeyError("the job's own")

    async def test() -> None:
        facts = Facts("id")
        current.set(facts)
        with pytest.raises(KeyError, match="the job's own"):
            await Lane("error", 1).run(fail)
        assert facts.outcome == "noted"

    run(test())


def test_a_crowd_passes_the_turnstile_by_and_by_and_in_order() -> None:
    async def test() -> None:
        passed: list[int] = []
        batches: list[int] = []

        async def between() -> None:
            await asyncio.sleep(0)
            batches.append(len(passed))
            raise ConnectionError("an outage holds nobody up")

        turnstile = Turnstile(3, between)

        async def enter(number: int) -> None:
            await turnstile.enter()
            passed.append(number)

        tasks = [asyncio.create_task(enter(number)) for number in range(10)]
        await asyncio.sleep(0)
        tasks[4].cancel()  # leaves, and holds nobody up
        await _until(lambda: len(passed) == 9)
        assert batches[:3] == [3, 6, 9]
        assert passed == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        for number in range(10, 15):
            await asyncio.wait_for(enter(number), 5)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(batches) <= 5, "where there is room, nobody asks in between"

    run(test())


def test_what_comes_in_at_once_is_handled_turn_by_turn_and_in_order() -> None:
    async def test() -> None:
        intake, done = Intake(3), list[int]()
        now = [intake.call(partial(done.append, number)) for number in range(8)]
        assert now == [True] * 3 + [False] * 5
        seen = []
        while len(done) < 8:
            seen.append(len(done))
            await asyncio.sleep(0)
        assert max(after - before for before, after in pairwise(seen)) <= 3
        assert done == list(range(8))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert intake.call(partial(done.append, 8))

    run(test())
