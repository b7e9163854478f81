"""Threads for what blocks, bounded in number, for an event loop that must not."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, TypeVar

from django.conf import settings
from django.db import connection

from shop.errors import Unavailable

T = TypeVar("T")

#: Seconds without work after which a thread gives its database connection back to the pool.
KEEP = 1.0
#: Threads that use the database where each has a connection of its own (SHOP_DB_POOL=0).
WITHOUT_POOL = 20


async def wait_out(future: asyncio.Future[Any]) -> None:
    """Return when it is done, however often this task is cancelled meanwhile."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({future})


class Job:
    """One call that a thread will make, and the future of its result."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self.result: asyncio.Future[Any] = self.loop.create_future()
        self._call = call
        self._context: Context = copy_context()  # which request it belongs to

    def run(self) -> None:
        """In the thread."""
        try:
            found, error = self._context.run(self._call), None
        except BaseException as raised:
            found, error = None, raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self.loop.call_soon_threadsafe(self.end, found, error)

    def end(self, found: Any, error: BaseException | None) -> None:
        """In the event loop."""
        if self.result.done():
            return
        if error is None:
            self.result.set_result(found)
        else:
            self.result.set_exception(error)
            self.result.exception()  # retrieved: a client that is gone does not ask for it


class Lane:
    """A queue of jobs, first in, first out, and at most `threads` threads, started when needed.

    keeps  whether a thread keeps its database connection from one job to the next
    """

    def __init__(self, name: str, threads: int, *, keeps: bool = False) -> None:
        self.name = name
        self.most = threads
        self._keeps = keeps
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._idle: list[queue.SimpleQueue[Job]] = []  # the last one that worked is the next
        self._started = 0

    async def run(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        """The result of the call, made in a thread. Cancelled before it has begun, it is never
        made; cancelled later, it is waited for, and then CancelledError is raised."""
        job = Job(lambda: call(*given, **named))
        self._submit(job)
        try:
            return await asyncio.shield(job.result)
        except asyncio.CancelledError:
            if not self._withdraw(job):
                await wait_out(job.result)
            raise

    def refuse_waiting(self) -> None:
        """Answer every job that has no thread yet with Unavailable: none of them has begun."""
        with self._lock:
            waiting = list(self._jobs)
            self._jobs.clear()
        for job in waiting:
            job.end(None, Unavailable("this node is stopping: nothing was sold"))

    def _submit(self, job: Job) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().put(job)
                return
            if self._started >= self.most:
                self._jobs.append(job)
                return
            self._started += 1
        name = f"{self.name}-{self._started}"
        threading.Thread(target=self._work, args=(job,), name=name, daemon=True).start()

    def _withdraw(self, job: Job) -> bool:
        """Whether no thread has begun this job, so that none will."""
        with self._lock:
            try:
                self._jobs.remove(job)
            except ValueError:
                return False
            return True

    def _work(self, job: Job) -> None:
        mailbox: queue.SimpleQueue[Job] = queue.SimpleQueue()
        while True:
            job.run()
            if not self._keeps or connection.errors_occurred:
                connection.close()
            with self._lock:
                following = self._jobs.popleft() if self._jobs else None
                if following is None:
                    self._idle.append(mailbox)
            job = following or self._next(mailbox)

    @staticmethod
    def _next(mailbox: queue.SimpleQueue[Job]) -> Job:
        try:
            return mailbox.get(timeout=KEEP if connection.connection is not None else None)
        except queue.Empty:
            connection.close()
            return mailbox.get()


class Lanes:
    """Threads of a process, by what they wait for, so that nobody waits for those behind.

    holders   for those that hold the lock already. They wait for the database alone, never for a
              thread that somebody else occupies while waiting for their lock
    database  for strategies without a lock of their own, and for what is asked beside a sale
    others    for strategies that wait for their lock in a thread, the most purchases of them that
              this process has in flight (WEB_THREADS). One that holds its lock is in its thread
              already, so none waits for a thread that waits for it
    """

    def __init__(self, others: int) -> None:
        connections = settings.SHOP_DB_POOL or WITHOUT_POOL
        # Connections that the holders keep are not free for the rest.
        self.holders = Lane("holder", max(1, connections * 3 // 4), keeps=True)
        self.database = Lane("database", connections)
        self.others = Lane("other", others)

    def refuse_waiting(self) -> None:
        """Refuse every purchase that has not begun."""
        self.database.refuse_waiting()
        self.others.refuse_waiting()
