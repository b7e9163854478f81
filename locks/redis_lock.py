"""RedisLock: the lock to copy. One Redis or Valkey server, a token, a fence."""

from __future__ import annotations

import random
import time

import redis

from locks.errors import LockBackendError, LockTimeout
from locks.lease import Lease, Release, new_token
from locks.lock import Lock
from locks.scripts import script

#: Seconds for which the last fence outlives its lock; longer than any stale holder sleeps.
FENCE_MEMORY = 7 * 24 * 3600
#: Seconds between two tries of a waiter.
RETRY = 0.01


def _escape(name: str) -> str:
    """`name` without braces, so that the hash tag around it is the whole of it."""
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


class RedisLock(Lock):
    """Mutual exclusion by name on one Redis, with a fence for the storage to check.

    client  a redis.Redis that does not retry commands by itself, with a socket timeout
    name    what is locked, any non-empty text
    ttl     seconds that the lock survives a holder that stopped answering

        lock = RedisLock(client, "product:42", ttl=10)
        with lock.hold(wait=5) as lease:
            ...  # UPDATE ... SET fence = lease.fence WHERE ... AND fence < lease.fence
    """

    def __init__(self, client: redis.Redis, name: str, *, ttl: float) -> None:
        super().__init__(name, ttl=ttl)
        self.client = client
        tag = "lock:{" + _escape(name) + "}"
        self._keys = [tag, f"{tag}:fence"]

    def acquire(self, wait: float | None) -> Lease:
        token = new_token()
        started = time.monotonic()
        while True:
            asked = time.monotonic()
            fence = self._ask(token)
            if fence is not None:
                return Lease(
                    name=self.name,
                    token=token,
                    fence=fence,
                    deadline=asked + self.ttl,
                    release=self._release,
                    waited=time.monotonic() - started,
                )
            left = RETRY if wait is None else min(RETRY, started + wait - asked)
            if left <= 0:
                raise LockTimeout(name=self.name)
            time.sleep(left * random.uniform(0.5, 1.0))

    def _ask(self, token: str) -> int | None:
        """The fence if the lock is ours now, else None."""
        args: list[str | int] = [token, max(1, round(self.ttl * 1000)), FENCE_MEMORY * 1000]
        try:
            taken, value = script("acquire")(self.client, self._keys, args)
        except redis.RedisError as error:
            self._give_up(token)
            raise LockBackendError(name=self.name) from error
        return int(value) if taken else None

    def _give_up(self, token: str) -> None:
        """The reply was lost: the lock may be ours. Leave nothing behind if the server answers."""
        try:
            script("compare_and_delete")(self.client, self._keys[:1], [token])
        except redis.RedisError:
            return  # the ttl frees it

    def _release(self, lease: Lease) -> Release:
        try:
            ours = script("compare_and_delete")(self.client, self._keys[:1], [lease.token])
        except redis.RedisError:
            return Release.UNKNOWN
        return Release.RELEASED if ours else Release.EXPIRED
