"""Threads that wait for a lock, brought into a known order without sleeping."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from .. import Lease, RedisLock
from ..testing.server import eventually

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Run `work` in a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def queued(lock: RedisLock, waiters: int) -> None:
    """Return when so many wait in the lock's queue."""
    eventually(lambda: len(lock.inspect().waiters) == waiters)


def waiter(lock: RedisLock, wait: float | None = 10) -> Future[Lease]:
    """A thread that waits for the lock, already in its queue."""
    before = set(lock.inspect().waiters)  # some of them may leave meanwhile
    future = in_thread(lambda: lock.acquire(wait))
    eventually(lambda: set(lock.inspect().waiters) - before)
    return future


@contextmanager
def held(lock: RedisLock) -> Iterator[Lease]:
    """Somebody holds the lock; released at the end unless the test did it."""
    lease = lock.acquire(5)
    yield lease
    if lease.outcome is None:
        lease.release()
