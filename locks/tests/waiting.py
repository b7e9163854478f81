"""Helpers of the tests: start threads that wait for a lock, inspect its queue, run a program."""

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
#: A pattern for LoopbackProxy that matches every command.
ANY_COMMAND = b"\r\n"
#: The type of the fixture `start_worker`, which starts one worker per call.
StartWorker: TypeAlias = Callable[[], Worker]
#: The name of the locks' package, which differs in a copied folder.
LOCKS_PACKAGE = str(__package__).rpartition(".")[0]
#: The folder from which that package is imported.
ROOT = Path(__file__).parents[LOCKS_PACKAGE.count(".") + 2]


def run_in_thread(work: Callable[[], T]) -> Future[T]:
    """Run `work` in a new thread, and return a future of its result."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def wait_until_queued(lock: Any, count: int) -> None:
    """Wait until the lock's queue has exactly `count` waiters."""
    eventually(lambda: len(lock.inspect().waiters) == count)


def start_waiter(lock: Any, wait: float | None = 10) -> Future[Lease]:
    """Start a thread that waits for the lock, and return once the thread is in the queue.

    Returns:
        A future of the lease that the thread will get.
    """
    # Compare the tokens instead of their number: an earlier waiter may leave the queue meanwhile.
    earlier_waiters = set(lock.inspect().waiters)
    future = run_in_thread(lambda: lock.acquire(wait))
    eventually(lambda: set(lock.inspect().waiters) - earlier_waiters)
    return future


def start_recording_waiter(lock: Any, name: str, served: list[str]) -> Future[None]:
    """Start a thread that waits for the lock, and return once the thread is in the queue.

    When the thread gets the lock, it appends `name` to `served` and releases the lock.

    Returns:
        A future that is done after that release.
    """

    def record_and_release() -> None:
        with lock.hold(wait=30):
            served.append(name)

    waiters_before = len(lock.inspect().waiters)
    release = run_in_thread(record_and_release)
    wait_until_queued(lock, waiters_before + 1)
    return release


def count_subscribers(lock: Any) -> list[int]:
    """Return the number of subscribers of each channel on which a waiter of the lock is woken.

    It is 0 for a waiter whose process is dead or cut off, and 1 otherwise.
    """
    # keys[2] is a hash. It maps the token of each waiter to an entry that begins with the channel.
    # Its field "*" belongs to no waiter: see KEYS[3] in hand_over.lua.
    fields = lock.client.hgetall(lock.keys[2])
    channels = {entry.split()[0] for token, entry in fields.items() if token != b"*"}
    return [count for _, count in lock.client.pubsub_numsub(*channels)]


def is_free(lock: Any) -> bool:
    """Return whether the lock has neither holder nor waiters."""
    inspection = lock.inspect()
    return inspection.owner is None and not inspection.waiters


def run_program(
    *command: object, folder: Path = ROOT, exit_code: int = 0, env: dict[str, str] | None = None
) -> str:
    """Run a program, check its exit code, and return what it wrote to stdout and stderr."""
    process = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert process.returncode == exit_code, process.stdout
    return process.stdout


@contextmanager
def hold_lock(lock: Any) -> Iterator[Lease]:
    """Hold the lock in a `with` block. At its end release the lock, unless the block did that.

    If the block raises an exception, do not release the lock: an error of the release would hide
    that exception.
    """
    lease = lock.acquire(5)
    yield lease
    if lease.outcome is None:
        lease.release()
