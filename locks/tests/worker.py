"""A process for the tests to pause and to kill, and what it can be asked to do:

acquire  name ttl wait [more options of RedisLock]   {"fence", "token"}
async_waiter  name ttl: a task waits, in a loop in its own thread
leave_a_child_now  the process id of a forked child that does nothing
crowd    name ttl wait waiters: as many threads that acquire and release; answers at once
release                                              what it found
check                                                "held" or the error
fork                                                 what a forked child finds in the same lease
"""

import asyncio
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

from .. import AsyncRedisLock, Lease, LockError, RedisLock
from ..testing.server import eventually


class Worker:
    """A process that does one thing after the other."""

    def __init__(self, port: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, child_pipe = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(port, child_pipe), daemon=True)
        self._process.start()
        child_pipe.close()
        assert self.answer() == "ready"

    def send(self, do: str, **arguments: Any) -> None:
        """Have it do that, and do not wait for its answer."""
        self._pipe.send((do, arguments))

    def answer(self) -> Any:
        """The answer to the oldest thing sent."""
        return self._pipe.recv()

    def ask(self, do: str, **arguments: Any) -> Any:
        self.send(do, **arguments)
        return self.answer()

    def pause(self) -> None:
        """SIGSTOP, and wait until it is stopped."""
        send_signal(self._process, signal.SIGSTOP)
        stat = Path(f"/proc/{self._process.pid}/stat")
        if stat.exists():
            eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def resume(self) -> None:
        send_signal(self._process, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is dead."""
        self._process.kill()
        self._process.join(10)
        self._pipe.close()


def send_signal(process: BaseProcess, number: signal.Signals) -> None:
    assert process.pid is not None
    os.kill(process.pid, number)


class Holder:
    """The lease that this process holds, one at a time."""

    def __init__(self, port: int) -> None:
        self.client = redis.Redis(port=port)
        self.lease: Lease | None = None

    def acquire(self, name: str, wait: float | None, **options: Any) -> dict[str, Any]:
        self.lease = lease = RedisLock(self.client, name, **options).acquire(wait)
        return {"fence": lease.fence, "token": lease.token}

    def crowd(self, name: str, ttl: float, wait: float, waiters: int) -> str:
        lock = RedisLock(self.client, name, ttl=ttl)

        def once() -> None:
            with suppress(LockError), lock.hold(wait=wait):
                pass

        for _ in range(waiters):
            threading.Thread(target=once, daemon=True).start()
        return "waiting"

    def async_waiter(self, name: str, ttl: float) -> str:
        client = redis.asyncio.Redis(port=self.client.connection_pool.connection_kwargs["port"])
        lock = AsyncRedisLock(client, name, ttl=ttl)
        threading.Thread(target=lambda: asyncio.run(lock.acquire(None)), daemon=True).start()
        return "waiting"

    def leave_a_child_now(self) -> int:
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        return child

    def release(self) -> str:
        assert self.lease is not None
        return self.lease.release().value

    def check(self) -> str:
        assert self.lease is not None
        self.lease.check()
        return "held"

    def _connection_of(self, name: str) -> Any:
        """The local end of the connection that a command of the lock has just used."""
        lock = RedisLock(self.client, name, ttl=1)
        lock.inspect()
        return lock._server._idle[-1]._sock.getsockname()

    def fork(self, name: str) -> dict[str, Any]:
        """A child tries the inherited lease, then holds its own lock for longer than a ttl."""
        inherited = self._connection_of(name)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            answer: dict[str, Any] = {}
            for use in (self.check, self.release):
                try:
                    answer[use.__name__] = use()
                except LockError as error:
                    answer[use.__name__] = type(error).__name__
            answer["own connection"] = self._connection_of(name) != inherited
            own = RedisLock(self.client, name, ttl=1.5).acquire(5)
            answer["kept"] = not own.lost_event.wait(2.0) and own.remaining() > 0
            answer["own"] = own.release().value
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
        os.close(writing)
        with open(reading) as pipe:
            answer = json.loads(pipe.read())
        os.waitpid(child, 0)
        return answer


def serve(port: int, pipe: Connection) -> None:
    """Answer one request after the other, in the process."""
    holder = Holder(port)
    pipe.send("ready")
    while True:
        do, arguments = pipe.recv()
        work: Callable[..., Any] = getattr(holder, do)
        try:
            answer = work(**arguments)
        except LockError as error:
            answer = type(error).__name__
        pipe.send(answer)
