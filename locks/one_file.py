"""OneFileLock: a lock on Redis or Valkey in one file, to copy into a project.

It has a token, so that no holder releases another's lock. A thread renews the lease, so that a dead
holder blocks the waiters for one `ttl` only. And it has a fence for the database to check:

    time 0   A takes the lock for 10 s, reads a stock of 1, and its process is paused
    time 10  the lock expires; B takes it, claims its higher fence and sells the unit
    time 12  A continues; the database refuses its lower fence, or it would sell the unit again

    client = redis.Redis(socket_timeout=1, retry=Retry(NoBackoff(), 1))
    lock = OneFileLock(client, "product:42", ttl=10, max_hold=20)
    with lock.hold(wait=5) as lease, transaction.atomic():
        ...  # UPDATE product SET fence = %s WHERE id = 42 AND fence < %s; no row: roll back

Waiters poll, in no particular order. `RedisLock` uses the same keys and adds a queue.
"""

from __future__ import annotations

import logging
import math
import os
import random
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

logger = logging.getLogger(__name__)

#: Take the lock unless another token has it. KEYS: lock, last fence. ARGV: token, milliseconds for
#: which the lock is held, milliseconds for which the fence is remembered. Return the fence (the
#: server's clock in microseconds, or the last fence plus 1 if that is more), or nil.
ACQUIRE = """
local holder = redis.call('get', KEYS[1])
if holder and holder ~= ARGV[1] then return false end
local clock = redis.call('time')
local last_fence = tonumber(redis.call('get', KEYS[2]) or 0)
local fence = math.max(clock[1] * 1000000 + clock[2], last_fence + 1)
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('set', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[3])
return fence
"""
#: Renew the lock, or delete it if ARGV[2] is 0. KEYS, ARGV as above. Return 0 if it is not ours.
RENEW = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('del', KEYS[1]) end
return redis.call('pexpire', KEYS[1], ARGV[2])
"""
FENCE_MEMORY_MILLISECONDS = 7 * 24 * 3600 * 1000  # longer than a holder can be paused
FIRST_PAUSE_SECONDS = 0.002  # the first pause between two polls; it then doubles
LONGEST_PAUSE_SECONDS = 0.05  # short, because a release wakes no waiter


class LockTimeout(TimeoutError):
    """The lock was not free within the wait. Try again later, or wait longer."""


class LockLost(Exception):
    """The lease can no longer be trusted. Roll back and start again with a new one."""


class OneFileLock:
    """Mutual exclusion by name on one Redis or Valkey. One object may serve all threads."""

    def __init__(self, client: Any, name: str, *, ttl: float, max_hold: float | None = None):
        """Make a lock, without asking the server.

        Args:
            client: A redis.Redis with a socket_timeout of at most ttl / 6 and at most one retry.
                These two options limit how long a silent server blocks the caller.
            name: What is locked.
            ttl: Seconds that the lock survives a holder that stopped answering.
            max_hold: Seconds after which a lease is no longer renewed. None: no limit.
        """
        if iscoroutinefunction(client.execute_command) or hasattr(client, "command_stack"):
            raise TypeError(f"client must be a redis.Redis, not {client!r}")
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, not {name!r}")
        if not (name and 0.01 <= ttl < math.inf and (max_hold is None or max_hold >= ttl)):
            raise ValueError(f"{name=}, {ttl=}, {max_hold=}: give a name, seconds, max_hold >= ttl")
        self.name = name
        self.ttl = ttl
        self.max_hold = max_hold
        self._acquire_script = client.register_script(ACQUIRE)
        self._renew_script = client.register_script(RENEW)
        self._ttl_milliseconds = math.ceil(1000 * ttl)
        self._trusted_seconds = 0.99 * ttl - 0.002  # clocks may differ by 1 % and 2 ms
        escaped_name = name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
        self._key = b"lock:{%b}" % escaped_name.encode()  # the braces give all keys one slot

    def hold(self, wait: float | None) -> Hold:
        """Return a context manager that waits `wait` seconds at most (None: no limit).

        On entry it raises LockTimeout or an exception of the client; on exit it raises nothing.
        """
        if wait is not None and not wait >= 0:
            raise ValueError(f"wait must be None or at least 0 seconds, not {wait!r}")
        return Hold(self, wait)

    def _acquire(self, token: str, wait: float | None) -> Lease:
        started_at = time.monotonic()
        args = [token, self._ttl_milliseconds, FENCE_MEMORY_MILLISECONDS]
        pause = FIRST_PAUSE_SECONDS
        while True:
            sent_at = time.monotonic()
            fence = self._acquire_script([self._key, self._key + b":fence"], args)
            trusted_until = sent_at + self._trusted_seconds
            if not isinstance(fence, int | None):  # from an asyncio client or a pipeline
                raise TypeError(f"the client answered {fence!r} instead of an integer")
            if fence and time.monotonic() < trusted_until:
                return Lease(self.name, token, fence, started_at, trusted_until)
            remaining = math.inf if wait is None else started_at + wait - time.monotonic()
            if remaining <= 0:
                if fence:
                    _start_thread(self._release, token)
                raise LockTimeout(f"{self.name}: not free within {wait} s")
            if not fence:  # with a fence, the reply came after the ttl: acquire again at once
                time.sleep(min(remaining, pause * random.uniform(0.5, 1.5)))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _release(self, token: str) -> str:
        try:
            was_ours = self._renew_script([self._key], [token, 0])  # 0 ms: delete the lock
            return "released" if was_ours else "expired"
        except Exception as error:
            logger.warning("%s: not released, its ttl ends it: %s", self.name, error)
            return "unknown"


class Lease:
    """One acquisition of a lock, renewed each third of the ttl by a thread.

    Attributes:
        name: The name of the lock.
        token: Unique to this acquisition.
        fence: An integer that only increases.
        waited_seconds: Seconds from the start of the acquisition to the grant.
        outcome: None until the release; then "released", "expired" (the lock was lost, or the
            client sent the release twice) or "unknown" (no reply; the ttl ends the lock).
    """

    def __init__(self, name: str, token: str, fence: int, started_at: float, end: float) -> None:
        self.name = name
        self.token = token
        self.fence = fence
        self.outcome: str | None = None
        self._pid = os.getpid()
        self._is_over = threading.Event()
        self._acquired_at = time.monotonic()
        self._released_at = math.inf
        self._trusted_until = end
        self.waited_seconds = self._acquired_at - started_at

    @property
    def held_seconds(self) -> float:
        """Seconds for which the lock was held, or has been held so far."""
        return min(time.monotonic(), self._released_at) - self._acquired_at

    def check(self) -> None:
        """Raise LockLost if the lease can no longer be trusted. Costs no round trip."""
        is_over = self._is_over.is_set() or self._pid != os.getpid()
        if is_over or time.monotonic() >= self._trusted_until:
            raise LockLost(f"{self.name}: the lease is over; roll back and start again")


class Hold:
    """The context manager of one block. Only the block keeps it alive: see `_renew`."""

    def __init__(self, lock: OneFileLock, wait: float | None) -> None:
        self._lock = lock
        self._wait = wait
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        if self._lease is not None:
            raise RuntimeError(f"{self._lock.name}: call lock.hold() anew for each block")
        token = secrets.token_hex(16)
        try:
            self._lease = self._lock._acquire(token, self._wait)
            _start_thread(_renew, weakref.ref(self), self._lock, self._lease)
        except BaseException as error:
            if not isinstance(error, LockTimeout):  # the server may have granted the lock
                _start_thread(self._lock._release, token)
            raise
        return self._lease

    def __exit__(self, *exception: object) -> None:
        lease = self._lease
        if lease is not None and lease._pid == os.getpid():  # not in a forked child
            lease._is_over.set()
            lease._released_at = time.monotonic()
            lease.outcome = "unknown"  # stays so if a signal handler raises before the reply
            lease.outcome = self._lock._release(lease.token)
            if lease.outcome == "expired":
                logger.warning("%s: the lease was lost before its release", lease.name)


def _renew(block: weakref.ref[Hold], lock: OneFileLock, lease: Lease) -> None:
    # `block` is weak, so the renewals end even if a signal handler's exception skips the release.
    renewal_ends_at = lease._acquired_at + (lock.max_hold or math.inf)
    while not lease._is_over.wait(lock.ttl / 3) and block() is not None:
        sent_at = time.monotonic()
        if sent_at >= min(renewal_ends_at, lease._trusted_until):
            return
        try:
            is_ours = lock._renew_script([lock._key], [lease.token, lock._ttl_milliseconds])
            lease._trusted_until = sent_at + lock._trusted_seconds if is_ours else 0.0
        except Exception as error:
            logger.warning("%s: not renewed, trying again: %s", lock.name, error)


def _start_thread(function: Callable[..., Any], *args: Any) -> None:
    try:
        threading.Thread(target=function, args=args, name="locks.one_file", daemon=True).start()
    except RuntimeError as error:  # the interpreter is ending; the ttl then ends the lock
        logger.warning("no thread for %s: %s", function.__name__, error)
