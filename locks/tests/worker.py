"""A process for the tests to pause and to kill: one JSON object per line in, one answer per line.

acquire  name ttl wait [more options of RedisLock]   {"fence", "token"}
async_waiter  name ttl: a task waits, in a loop in a thread of its own
leave_a_child_now  the process id of a forked child that does nothing
crowd    name ttl wait waiters: as many threads that acquire and release; answers at once
release                                              what it found
check                                                "held" or the error
fork                                                 what a forked child finds in the same lease
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import redis
import redis.asyncio

from .. import AsyncRedisLock, Lease, LockError, RedisLock


class Holder:
    """What this process holds: one lease at a time."""

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
        threading.Thread(target=lambda: asyncio.run(_take(lock)), daemon=True).start()
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
        """A child tries the inherited lease, then holds a lock of its own for longer than a ttl."""
        inherited = self._connection_of(name)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            found: dict[str, Any] = {}
            for use in (self.check, self.release):
                try:
                    found[use.__name__] = use()
                except LockError as error:
                    found[use.__name__] = type(error).__name__
            found["own connection"] = self._connection_of(name) != inherited
            own = RedisLock(self.client, name, ttl=1.5).acquire(5)
            found["kept"] = not own.lost_event.wait(2.0) and own.remaining() > 0
            found["own"] = own.release().value
            os.write(writing, json.dumps(found).encode())
            os._exit(0)
        os.close(writing)
        with open(reading) as pipe:
            found = json.loads(pipe.read())
        os.waitpid(child, 0)
        return found


async def _take(lock: AsyncRedisLock) -> None:
    async with lock.hold(wait=None):
        pass


def main(port: int) -> None:
    holder = Holder(port)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        do: Callable[..., Any] = getattr(holder, command.pop("do"))
        try:
            answer = do(**command)
        except LockError as error:
            answer = type(error).__name__
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
