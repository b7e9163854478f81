"""What the articles' locks share: try, sleep, try again until the wait is over."""

from __future__ import annotations

import time
from abc import abstractmethod

import redis

from ..errors import LockBackendError, LockTimeout
from ..lease import Lease, Release, new_token
from ..lock import Lock
from ..support import now


class Polling(Lock):
    """A lock that is asked for again and again.

    The queue has no order: whoever asks first after the release has the lock.
    """

    @abstractmethod
    def try_lock(self, token: str) -> bool:
        """Ask once."""

    @abstractmethod
    def unlock(self, token: str) -> bool:
        """Release; False when the lock was no longer ours (as far as this lock knows)."""

    @abstractmethod
    def pause(self) -> float:
        """Seconds to sleep before asking again."""

    def trusted(self) -> float:
        """Seconds from asking for the lock for which it can be trusted."""
        return self.ttl

    def acquire(self, wait: float | None) -> Lease:
        token = new_token()
        started = now()
        while True:
            asked = now()
            try:
                taken = self.try_lock(token)
            except redis.RedisError as error:
                raise LockBackendError(name=self.name) from error
            if taken:
                return Lease(
                    name=self.name,
                    token=token,
                    deadline=asked + self.trusted(),
                    release=self._release,
                    waited_seconds=now() - started,
                )
            pause = self.pause()
            left = pause if wait is None else min(pause, started + wait - asked)
            if left <= 0:
                raise LockTimeout(name=self.name)
            time.sleep(left)

    def _release(self, lease: Lease) -> Release:
        try:
            return Release.RELEASED if self.unlock(lease.token) else Release.EXPIRED
        except redis.RedisError:
            return Release.UNKNOWN


class PollingLock(Polling):
    """One key on one server, asked for every `retry` seconds (A1: 0.1).

    client  a redis.Redis that does not retry commands by itself, with a socket timeout
    """

    def __init__(self, client: redis.Redis, name: str, *, ttl: float, retry: float = 0.1) -> None:
        super().__init__(name, ttl=ttl)
        self.client = client
        self.key = f"lock:{name}"
        self.retry = retry

    @property
    def ttl_ms(self) -> int:
        return max(1, round(self.ttl * 1000))

    def pause(self) -> float:
        return self.retry
