"""Threads that wait for a lock, in a known order without sleeping; and programs that use one."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from .. import Lease
from ..testing.server import eventually
from .worker import Worker

T = TypeVar("T")
#: Starts a process on the test's server.
Start: TypeAlias = Callable[[], Worker]
#: The package of the locks, whatever it is called here, and the folder that it is imported from.
LOCKS = str(__package__).rpartition(".")[0]
ROOT = Path(__file__).parents[LOCKS.count(".") + 2]


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Run `work` in a new thread."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def queued(lock: Any, waiters: int) -> None:
    """Return when this many wait in the lock's queue."""
    eventually(lambda: len(lock.inspect().waiters) == waiters)


def waiter(lock: Any, wait: float | None = 10) -> Future[Lease]:
    """A thread that waits for the lock, already in its queue."""
    before = set(lock.inspect().waiters)  # some of them may leave meanwhile
    future = in_thread(lambda: lock.acquire(wait))
    eventually(lambda: set(lock.inspect().waiters) - before)
    return future


def in_line(lock: Any, who: str, served: list[str]) -> Future[None]:
    """A thread already in the lock's queue, which notes in `served` that it had its turn."""

    def turn() -> None:
        with lock.hold(wait=30):
            served.append(who)

    place = len(lock.inspect().waiters) + 1
    turned = in_thread(turn)
    queued(lock, place)
    return turned


def listeners(lock: Any) -> list[int]:
    """Return the number of subscribers of each process's channel that waits for the lock."""
    waiters = lock.client.hgetall(lock.keys[2])
    channels = {value.split()[0] for token, value in waiters.items() if token != b"*"}
    return [count for _, count in lock.client.pubsub_numsub(*channels)]


def is_free(lock: Any) -> bool:
    """Return whether the lock has neither holder nor waiters."""
    state = lock.inspect()
    return (state.owner, state.waiters) == (None, ())


def run(
    *command: object, folder: Path = ROOT, code: int = 0, env: dict[str, str] | None = None
) -> str:
    """Run a program, require this exit code, and return its output and its errors."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


@contextmanager
def held(lock: Any) -> Iterator[Lease]:
    """Hold the lock for the block, and release it unless the test did."""
    lease = lock.acquire(5)
    yield lease
    if lease.outcome is None:
        lease.release()
