"""One of the processes of stress.py: takes the lock again and again, and writes down what it sees.

    python -m locks.bench.stress_worker <door> <port> <counter's port> <ttl> <seconds> <history>

The history has one JSON object per line: {"fence", "at"}, the monotonic second just before a check
that passed; {"counted"}, a fenced write that was accepted; and at the end {"left"}, what is left in
this process of waiters, leases and tokens to clean up. A line is written before anything else
happens, so that a killed holder's are there. SIGTERM ends it before its time.
"""

import asyncio
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis
import redis.asyncio

from .. import AsyncRedisLock, LockError, RedisLock

#: Waits, in seconds: tries, short ones that end in the queue, and those that must be served.
WAITS = [0.0, 0.02, 0.3, 60.0, 60.0]
HOLDS = [0.0, 0.0, 0.001, 0.005]
THREADS = 8
TASKS = 60
#: Set at the end.
over = threading.Event()

#: Claim: refuse what comes after a higher fence. Returns the counter, or nil.
CLAIM = """
if tonumber(redis.call('hget', KEYS[1], 'fence') or 0) >= tonumber(ARGV[1]) then return false end
redis.call('hset', KEYS[1], 'fence', ARGV[1])
return redis.call('hget', KEYS[1], 'value') or '0'
"""
#: Write what was read, plus one, unless somebody has claimed since. Returns whether it was written.
WRITE = """
if redis.call('hget', KEYS[1], 'fence') ~= ARGV[1] then return 0 end
redis.call('hset', KEYS[1], 'value', ARGV[2])
return 1
"""


class Book:
    """The history, and the counter that the storage guards by the fence."""

    def __init__(self, path: str, port: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._counter: Any = redis.Redis(port=port)

    def note(self, **event: Any) -> None:
        os.write(self._file, json.dumps(event).encode() + b"\n")

    def read(self, lease: Any) -> int | None:
        """The counter, if the lease is good and its fence not too late."""
        self._check(lease)
        found = self._counter.eval(CLAIM, 1, "counter", lease.fence)
        return None if found is None else int(found)

    def write(self, lease: Any, found: int | None) -> None:
        """One more than what was read, if the lease is still good."""
        self._check(lease)
        if found is None:
            return
        if self._counter.eval(WRITE, 1, "counter", lease.fence, found + 1) == 1:
            self.note(counted=1)

    def _check(self, lease: Any) -> None:
        at = time.monotonic()
        lease.check()
        self.note(fence=lease.fence, at=at)


def client_of(door: str, port: int) -> Any:
    module: Any = redis.asyncio if "asyncio" in door else redis
    if "cluster" in door:
        return module.RedisCluster(host="127.0.0.1", port=port, socket_timeout=2)
    return module.Redis(port=port, socket_timeout=2)


def in_thread(lock: RedisLock, book: Book, chance: random.Random) -> None:
    while not over.is_set():
        try:
            with lock.hold(wait=chance.choice(WAITS)) as lease:
                found = book.read(lease)
                time.sleep(chance.choice(HOLDS))
                book.write(lease, found)
        except LockError:
            time.sleep(0.01)


async def in_task(lock: AsyncRedisLock, book: Book, chance: random.Random) -> None:
    while not over.is_set():
        try:
            # Cancelled at any moment, in the queue or in the block.
            async with asyncio.timeout(chance.choice([None, None, None, 0.01, 0.1, 0.5])):
                wait = chance.choice(WAITS)
                async with lock.hold(wait=wait, cancel_on_loss=chance.random() < 0.5) as lease:
                    found = book.read(lease)
                    await asyncio.sleep(chance.choice(HOLDS))
                    book.write(lease, found)
        except (LockError, TimeoutError):
            await asyncio.sleep(0.01)


async def tasks(door: str, port: int, book: Book, ttl: float) -> dict[str, int]:
    client = client_of(door, port)
    lock = AsyncRedisLock(client, "stress", ttl=ttl)
    chances = [random.Random(f"{os.getpid()}-{n}") for n in range(TASKS)]
    await asyncio.gather(*(in_task(lock, book, chance) for chance in chances))
    here = await lock._here()
    found = await asyncio.to_thread(left, here.wakeups.waiters, here.watchdog, ttl + 5)
    await client.aclose()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return found | {"tasks": sum("locks" not in task.get_name() for task in others)}


def threads(door: str, port: int, book: Book, ttl: float) -> dict[str, int]:
    lock = RedisLock(client_of(door, port), "stress", ttl=ttl)
    chances = [random.Random(f"{os.getpid()}-{n}") for n in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda chance: in_thread(lock, book, chance), chances))
    return left(lock._wakeups.waiters, lock._watchdog, ttl + 5)


def left(waiters: Any, renewals: Any, within: float) -> dict[str, int]:
    """What is left once nobody wants the lock: nothing, within so many seconds."""
    end = time.monotonic() + within
    while True:
        of = [node.watchdog for node in renewals.all()] if hasattr(renewals, "all") else [renewals]
        found = {
            "waiters": len(waiters.mailboxes),
            "leases": sum(len(each.renewals) for each in of),
            "abandoned": sum(len(each.abandoned) for each in of),
        }
        if not any(found.values()) or time.monotonic() > end:
            return found
        time.sleep(0.1)


def main(door: str, port: str, counter: str, ttl: str, seconds: str, path: str) -> None:
    logging.disable(logging.WARNING)  # there is a lot to warn about
    book = Book(path, int(counter))
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    ending = threading.Timer(float(seconds), over.set)
    ending.daemon = True
    ending.start()
    if "asyncio" in door:
        found = asyncio.run(tasks(door, int(port), book, float(ttl)))
    else:
        found = threads(door, int(port), book, float(ttl))
    book.note(left=found)


if __name__ == "__main__":
    main(*sys.argv[1:])
