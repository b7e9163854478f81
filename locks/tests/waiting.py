"""Helpers that start waiting threads in a known order, and programs that use a lock."""

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


def wait_until_queued(lock: Any, waiters: int) -> None:
    """Wait until the lock's queue has this many waiters."""
    eventually(lambda: len(lock.inspect().waiters) == waiters)


def start_waiter(lock: Any, wait: float | None = 10) -> Future[Lease]:
    """Start a thread that waits for the lock. Return a future of its lease once it is queued."""
    earlier_waiters = set(lock.inspect().waiters)  # some of them may leave meanwhile
    future = run_in_thread(lambda: lock.acquire(wait))
    eventually(lambda: set(lock.inspect().waiters) - earlier_waiters)
    return future


def queue_turn(lock: Any, name: str, served: list[str]) -> Future[None]:
    """Queue a thread for the lock. Once it has the lock, it appends `name` to `served`."""

    def take_turn() -> None:
        with lock.hold(wait=30):
            served.append(name)

    waiters = len(lock.inspect().waiters) + 1
    turn = run_in_thread(take_turn)
    wait_until_queued(lock, waiters)
    return turn


def count_subscribers(lock: Any) -> list[int]:
    """Return the number of subscribers of each channel on which a process waits for the lock."""
    # This key has the waiter's channel by the waiter's token, and a field "*": see hand_over.lua.
    fields = lock.client.hgetall(lock.keys[2])
    channels = {field.split()[0] for token, field in fields.items() if token != b"*"}
    return [count for _, count in lock.client.pubsub_numsub(*channels)]


def is_free(lock: Any) -> bool:
    """Return whether the lock has neither holder nor waiters."""
    state = lock.inspect()
    return (state.owner, state.waiters) == (None, ())


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
    """Hold the lock for the block, and release it unless the block has released it.

    If the block raises, the lock stays held: a release could hide the error of the test.
    """
    lease = lock.acquire(5)
    yield lease
    if lease.outcome is None:
        lease.release()
