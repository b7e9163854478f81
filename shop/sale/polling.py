"""What the articles' locks share: try, sleep, try again; and a thread that renews."""

import logging
import secrets
import threading
import time
from abc import abstractmethod
from collections.abc import Callable

import redis
from django.conf import settings

from locks import Lease, Lock, LockBackendError, LockTimeout, Release
from locks.protocol import milliseconds
from locks.support import now
from shop.sale.points import point

logger = logging.getLogger(__name__)

#: Seconds from one attempt to the next (A1).
RETRY = 0.1


def wall_clock() -> float:
    """Seconds since 1970 by this node's clock, which a demo may set wrong: for locks whose value is
    a time."""
    return time.time() + (settings.SHOP_DEMO_CLOCK_AHEAD if settings.SHOP_DEMO else 0.0)


class Polling(Lock):
    """A lock that is asked for again and again.

    The queue has no order: the first to ask after the release has the lock.
    """

    @abstractmethod
    def try_lock(self, token: str) -> bool:
        """Ask once."""

    @abstractmethod
    def unlock(self, token: str) -> bool:
        """Release; False when the lock was no longer ours (as far as this lock knows)."""

    def pause(self) -> float:
        """Seconds to sleep before asking again."""
        return RETRY

    def trusted(self) -> float:
        """Seconds from asking for the lock for which it can be trusted."""
        return self.ttl

    def acquire(self, wait: float | None) -> Lease:
        token = secrets.token_hex(16)
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
    """One key on one server.

    client  a redis.Redis that does not retry commands by itself, with a socket timeout
    """

    def __init__(self, client: redis.Redis, name: str, *, ttl: float) -> None:
        super().__init__(name, ttl=ttl)
        self.client = client
        self.key = f"lock:{name}"
        self.ttl_ms = milliseconds(ttl)


class Renewal:
    """A watchdog for one lock (A2, A3): calls `renew` each `every` seconds until False or `stop`.

    renew  one attempt; True: the lock is still ours, False: it is not, and renewing ends

    Being a thread of the holder's process it ends with it (A2), and stops with it: while the
    process is paused nothing is renewed. An error is logged and the next round tries again.
    """

    def __init__(self, renew: Callable[[], bool], *, every: float) -> None:
        self._renew = renew
        self._every = every
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="lock-renewal", daemon=True).start()

    def stop(self) -> None:
        """Renew no more. A renewal that is under way may still arrive; it must know the owner."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            point("watchdog:before_renew")
            try:
                if not self._renew():
                    return
            except redis.RedisError as error:
                logger.warning("renewal failed, the next is due in %.3f s: %s", self._every, error)
