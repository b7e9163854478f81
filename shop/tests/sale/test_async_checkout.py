"""The threads of an event loop that sells."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from shop.ops.logs import request_id
from shop.sale.async_checkout import in_thread


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


class Work:
    """A job that begins, and ends when it may."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.may_end = threading.Event()

    def __call__(self, number: int) -> int:
        self.begun.append(number)
        assert self.may_end.wait(20)
        return number


def test_a_job_cancelled_before_it_begins_is_never_made_and_later_it_is_waited_for() -> None:
    """Its lock must not be released while it still writes, however often it is cancelled."""

    async def test() -> None:
        pool, work = ThreadPoolExecutor(1), Work()
        first, second = (
            asyncio.create_task(in_thread(pool, partial(work, number))) for number in (1, 2)
        )
        await _until(lambda: work.begun)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        for _ in range(3):
            first.cancel()
            await asyncio.sleep(0)
            assert not first.done()
        work.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await in_thread(pool, lambda: 3) == 3
        assert work.begun == [1]

    asyncio.run(test())


def test_an_error_of_a_job_is_the_callers_and_its_request_is_known_in_the_thread() -> None:
    found = []

    def fail() -> None:
        found.append(request_id.get())
        raise KeyError("the job's own")

    async def test() -> None:
        request_id.set("id")
        with pytest.raises(KeyError, match="the job's own"):
            await in_thread(ThreadPoolExecutor(1), fail)
        assert found == ["id"]

    asyncio.run(test())
