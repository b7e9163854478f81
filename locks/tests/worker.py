"""A worker process, which tests can pause and kill. It executes these commands:

acquire(name, ttl, wait, ...): Acquire a lock. Reply: {"fence": ..., "token": ...}.
start_task(name, ttl): Start a task that waits for a lock, in an event loop in a new thread.
start_threads(name, ttl, wait, count): Start threads that each acquire and release a lock once.
fork_idle_child(): Fork a child that does nothing. Reply: its process id.
release(): Release the lease. Reply: the outcome of the release.
check(): Check the lease. Reply: "held".
use_lease_in_child(name): Use the lease in a forked child. Reply: see WorkerCommands.

If a command raises a LockError, the reply is the name of the error's class, such as "LockLost".
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
    """A separate process that executes the commands sent to it, one after the other."""

    def __init__(self, port: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, child_pipe = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(port, child_pipe), daemon=True)
        self._process.start()
        child_pipe.close()
        assert self.read_reply() == "ready"

    def send(self, command: str, **arguments: Any) -> None:
        """Send a command, and return without waiting for its reply: see read_reply()."""
        self._pipe.send((command, arguments))

    def read_reply(self) -> Any:
        """Wait for the reply to the oldest command that has no reply yet, and return the reply."""
        return self._pipe.recv()

    def run(self, command: str, **arguments: Any) -> Any:
        """Send a command, wait for its reply, and return it."""
        self.send(command, **arguments)
        return self.read_reply()

    def pause(self) -> None:
        """Send SIGSTOP, and wait until the process is stopped."""
        send_signal(self._process, signal.SIGSTOP)
        stat = Path(f"/proc/{self._process.pid}/stat")
        if stat.exists():
            # In this file the process's state follows its name in parentheses. T means stopped.
            eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def resume(self) -> None:
        send_signal(self._process, signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self._process.kill()
        self._process.join(10)
        self._pipe.close()


def send_signal(process: BaseProcess, number: signal.Signals) -> None:
    assert process.pid is not None
    os.kill(process.pid, number)


class WorkerCommands:
    """The commands of a worker, as methods. The worker has one lease at a time."""

    def __init__(self, port: int) -> None:
        self.client = redis.Redis(port=port)
        self.lease: Lease | None = None

    def acquire(self, name: str, wait: float | None, **options: Any) -> dict[str, Any]:
        """Acquire a lock, and return the fence and the token of the lease."""
        self.lease = lease = RedisLock(self.client, name, **options).acquire(wait)
        return {"fence": lease.fence, "token": lease.token}

    def start_threads(self, name: str, ttl: float, wait: float, count: int) -> str:
        """Start threads that each acquire and release a lock once."""
        lock = RedisLock(self.client, name, ttl=ttl)

        def acquire_and_release() -> None:
            with suppress(LockError), lock.hold(wait=wait):
                pass

        for _ in range(count):
            threading.Thread(target=acquire_and_release, daemon=True).start()
        return "started"

    def start_task(self, name: str, ttl: float) -> str:
        """Start a task that waits for a lock, in an event loop in a new thread."""
        client = redis.asyncio.Redis(port=self.client.connection_pool.connection_kwargs["port"])
        lock = AsyncRedisLock(client, name, ttl=ttl)
        threading.Thread(target=lambda: asyncio.run(lock.acquire(None)), daemon=True).start()
        return "started"

    def fork_idle_child(self) -> int:
        """Fork a child that does nothing, and return its process id."""
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        return child

    def release(self) -> str:
        """Release the lease, and return the outcome."""
        assert self.lease is not None
        return self.lease.release().value

    def check(self) -> str:
        """Check the lease, and return "held" if it is not lost."""
        assert self.lease is not None
        self.lease.check()
        return "held"

    def _read_connection_address(self, name: str) -> Any:
        """Send a command of a lock, and return the local address of the connection that sent it."""
        lock = RedisLock(self.client, name, ttl=1)
        lock.inspect()
        return lock._connections._idle[-1]._sock.getsockname()

    def use_lease_in_child(self, name: str) -> dict[str, Any]:
        """Fork a child. It uses the lease that its parent holds, and then a new lease.

        Returns:
            "check" and "release": The replies to these commands with the lease of the parent.
            "connection differs": Whether the child uses another connection than its parent.
            "new lease was renewed": Whether the child's lease outlived its ttl.
            "new release": The outcome of the release of that lease.
        """
        parent_connection = self._read_connection_address(name)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            reply: dict[str, Any] = {}
            for command in (self.check, self.release):
                try:
                    reply[command.__name__] = command()
                except LockError as error:
                    reply[command.__name__] = type(error).__name__
            reply["connection differs"] = self._read_connection_address(name) != parent_connection
            new_lease = RedisLock(self.client, name, ttl=1.5).acquire(5)
            reply["new lease was renewed"] = (
                not new_lease.lost_event.wait(2.0) and new_lease.remaining() > 0
            )
            reply["new release"] = new_lease.release().value
            os.write(writing, json.dumps(reply).encode())
            os._exit(0)
        os.close(writing)
        with open(reading) as pipe:
            reply = json.loads(pipe.read())
        os.waitpid(child, 0)
        return reply


def serve(port: int, pipe: Connection) -> None:
    """Execute the commands from the pipe in the worker's process, and send the reply to each."""
    commands = WorkerCommands(port)
    pipe.send("ready")
    while True:
        command, arguments = pipe.recv()
        work: Callable[..., Any] = getattr(commands, command)
        try:
            reply = work(**arguments)
        except LockError as error:
            reply = type(error).__name__
        pipe.send(reply)
