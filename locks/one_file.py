"""OneFileLock: a lock on Redis or Valkey in one file: of the locks here the one to copy.

A token, so that nobody releases another's lock; a lease that a thread renews, so that a dead holder
blocks the others for a `ttl` and no longer; and a fence for the database to check:

    time 0   A takes the lock for 10 s, reads a stock of 1, and its process is paused
    time 10  the lock expires; B takes it, claims its higher fence and sells the unit
    time 12  A goes on, and claims its fence in vain: without that it would sell the same unit

    lock = OneFileLock(redis.Redis(), "product:42", ttl=10, max_hold=20)
    with lock.hold(wait=5) as lease, transaction.atomic():
        ...  # UPDATE product SET fence = %s WHERE id = 42 AND fence < %s; no row: roll back

Waiters ask again and again, in no order; `RedisLock`, with the same keys, lets them queue.
"""

from __future__ import annotations

import logging
import math
import os
import random
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger(__name__)

#: Take the lock, unless another has it. KEYS: lock, last fence. ARGV: token, ttl of lock and fence.
#: Returns the fence (the server's microsecond, or the last one plus 1 if that is more), or nil.
ACQUIRE = """
local holder = redis.call('get', KEYS[1])
if holder and holder ~= ARGV[1] then return false end
local clock, last = redis.call('time'), redis.call('get', KEYS[2])
local fence = math.max(clock[1] * 1000000 + clock[2], tonumber(last or 0) + 1)
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('set', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[3])
return fence
"""
#: Renew the lock, or with a ttl of 0 delete it. KEYS, ARGV as above. Returns 0 if it is not ours.
RENEW = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('del', KEYS[1]) end
return redis.call('pexpire', KEYS[1], ARGV[2])
"""
WEEK = 7 * 24 * 3600 * 1000  # milliseconds for which the last fence is remembered
SHORTEST, LONGEST = 0.002, 0.05  # seconds between a waiter's questions: they double


class LockTimeout(TimeoutError):
    """The lock was not free within the wait. Ask again later, or wait longer."""


class LockLost(Exception):
    """The lease can no longer be trusted. Roll back and start again with a new one."""


class OneFileLock:
    """Mutual exclusion by name on one Redis or Valkey. One object may serve all threads.

    client    a redis.Redis; its socket_timeout and retries say how long a silent server is asked
    ttl       seconds that the lock survives a holder that stopped answering
    max_hold  seconds after which a lease is renewed no more; None: as long as its process lives
    """

    def __init__(self, client: Any, name: str, *, ttl: float, max_hold: float | None = None):
        if not (0.01 <= ttl < math.inf and (max_hold is None or max_hold >= ttl)):
            raise ValueError(f"ttl={ttl!r}, max_hold={max_hold!r}: give seconds, max_hold >= ttl")
        self.name, self.ttl, self.max_hold = name, ttl, max_hold
        self.acquire, self.renew_or_release = map(client.register_script, (ACQUIRE, RENEW))

    @contextmanager
    def hold(self, wait: float | None) -> Iterator[Lease]:
        """Hold the lock for the block, after at most `wait` seconds of waiting (None: no end).

        Raises LockTimeout, and what the client raises where the server is not reached. Leaving the
        block raises nothing of its own: see `lease.outcome`.
        """
        lease = Lease(self)
        try:
            lease._acquire(wait)
            yield lease
        finally:
            if lease._pid == os.getpid():  # no forked child: the lock is its parent's
                lease._release()  # whatever happened: if a reply got lost, the lock may be ours


class Lease:
    """One acquisition, renewed each third of the ttl by a thread of its own.

    token, fence    nobody else's; an integer that only rises
    waited_seconds  from asking for the lock to having it
    outcome         None while it is held, then "released", "expired" (not ours any more, or the
                    client asked twice) or "unknown" (no answer: free at the latest after its ttl)
    """

    def __init__(self, lock: OneFileLock) -> None:
        self.name, self.token, self.fence = lock.name, secrets.token_hex(16), 0
        self.waited_seconds, self._ended, self._milliseconds = 0.0, 0.0, math.ceil(1000 * lock.ttl)
        self.outcome: str | None = None
        self._lock, self._over, self._pid = lock, threading.Event(), os.getpid()
        self._key = f"lock:{{{lock.name.translate({37: '%25', 123: '%7B', 125: '%7D'})}}}"  # % { }
        self._since = self._until = time.monotonic()
        self._good_for = 0.99 * lock.ttl - 0.002  # the server's clock may be so much faster

    @property
    def held_seconds(self) -> float:
        """How long it was held, or has been held so far."""
        return (self._ended or time.monotonic()) - self._since

    def check(self) -> None:
        """Raise LockLost when the lease can no longer be trusted. Costs no round trip."""
        if self._over.is_set() or time.monotonic() >= self._until:
            raise LockLost(f"{self.name}: the lease is over; roll back and start again")

    def _acquire(self, wait: float | None) -> None:
        asked, pause, args = self._since, SHORTEST, [self.token, self._milliseconds, WEEK]
        while not (fence := self._lock.acquire([self._key, self._key + ":fence"], args)):
            left = math.inf if wait is None else self._since + wait - time.monotonic()
            if left <= 0:
                raise LockTimeout(f"{self.name}: not free within {wait} s")
            time.sleep(min(left, pause * random.uniform(0.5, 1.5)))
            asked, pause = time.monotonic(), min(2 * pause, LONGEST)
        self.fence, asking_since, self._since = fence, self._since, time.monotonic()
        self.waited_seconds, self._until = self._since - asking_since, asked + self._good_for
        threading.Thread(target=self._renew, name="locks.one_file", daemon=True).start()

    def _renew(self) -> None:
        stop = self._since + (self._lock.max_hold or math.inf)
        while not self._over.wait(self._lock.ttl / 3):
            if (asked := time.monotonic()) >= min(stop, self._until):
                return
            try:
                ours = self._lock.renew_or_release([self._key], [self.token, self._milliseconds])
                self._until = asked + self._good_for if ours else 0.0
            except Exception as error:
                logger.warning("%s: not renewed, trying again: %s", self.name, error)

    def _release(self) -> None:
        self._over.set()
        self._ended = time.monotonic()
        try:
            ours = self._lock.renew_or_release([self._key], [self.token, 0])
            self.outcome = "released" if ours else "expired"
        except Exception as error:
            self.outcome = "unknown"
            logger.warning("%s: not released, its ttl ends it: %s", self.name, error)
