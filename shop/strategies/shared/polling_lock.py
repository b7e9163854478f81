"""The base classes of the articles' locks, which a buyer polls, and a thread that renews a lock.

docs/sources.md lists the articles A0 to A4.
"""

import logging
import secrets
import threading
import time
from abc import abstractmethod
from collections.abc import Callable

import redis
from django.conf import settings

from locks import Lease, Lock, LockBackendError, LockTimeout, Release
from locks.clock import now
from locks.sans_io.protocol import to_milliseconds
from shop.sale.points import point_reached

logger = logging.getLogger(__name__)

#: Pause between two tries to acquire a lock, as in article A1.
RETRY_PAUSE_SECONDS = 0.1


def wall_clock() -> float:
    """Return the seconds since 1970, for locks whose value in Redis is a time.

    In a demo the clock is SHOP_DEMO_CLOCK_AHEAD seconds ahead.
    """
    if settings.SHOP_DEMO:
        return time.time() + float(settings.SHOP_DEMO_CLOCK_AHEAD)
    return time.time()


class AbstractPollingLock(Lock):
    """A lock that a waiting buyer tries to acquire again and again.

    There is no queue: the first to try after the release gets the lock.
    """

    @abstractmethod
    def try_lock(self, token: str) -> bool:
        """Try once to acquire the lock. Return whether it succeeded."""

    @abstractmethod
    def unlock(self, token: str) -> bool:
        """Release the lock. Return False if the server replies that the lock had expired before."""

    def choose_pause_seconds(self) -> float:
        """Return the seconds to sleep before the next try."""
        return RETRY_PAUSE_SECONDS

    def get_trusted_seconds(self) -> float:
        """Return the time from the start of a successful try to the deadline of the lease."""
        return self.ttl

    def acquire(self, wait: float | None) -> Lease:
        token = secrets.token_hex(16)
        started_at = now()
        while True:
            tried_at = now()
            try:
                is_acquired = self.try_lock(token)
            except redis.RedisError as error:
                raise LockBackendError(name=self.name) from error
            if is_acquired:
                return Lease(
                    name=self.name,
                    token=token,
                    deadline=tried_at + self.get_trusted_seconds(),
                    release=self._release,
                    waited_seconds=now() - started_at,
                )
            pause_seconds = self.choose_pause_seconds()
            if wait is not None:  # try a last time at the end of the wait
                pause_seconds = min(pause_seconds, started_at + wait - tried_at)
            if pause_seconds <= 0:
                raise LockTimeout(name=self.name)
            time.sleep(pause_seconds)

    def _release(self, lease: Lease) -> Release:
        try:
            return Release.RELEASED if self.unlock(lease.token) else Release.EXPIRED
        except redis.RedisError:
            return Release.UNKNOWN


class PollingLock(AbstractPollingLock):
    """A lock that is one key on one server, and that waiting buyers poll.

    client  a redis.Redis without retries, with a socket timeout
    """

    def __init__(self, client: redis.Redis, name: str, *, ttl: float) -> None:
        super().__init__(name, ttl=ttl)
        self.client = client
        self.key = f"lock:{name}"
        self.ttl_ms = to_milliseconds(ttl)


class RenewalThread:
    """A watchdog (articles A2, A3): a thread that renews one lock at regular intervals.

    renew             renews the lock once and returns whether the holder still has it; if not, the
                      thread ends
    interval_seconds  seconds between two renewals

    The thread ends with the holder's process (article A2). If the process is paused, the thread is
    paused, too, and renews nothing. An error is logged, and the next renewal is tried as usual.
    """

    def __init__(self, renew: Callable[[], bool], *, interval_seconds: float) -> None:
        self._renew = renew
        self._interval_seconds = interval_seconds
        self._stop_requested = threading.Event()
        threading.Thread(target=self._run, name="lock-renewal", daemon=True).start()

    def stop(self) -> None:
        """Stop renewing. A last renewal may still arrive, so `renew` must check the owner."""
        self._stop_requested.set()

    def _run(self) -> None:
        """Renew the lock until stop() is called or a renewal finds that the lock is lost."""
        while not self._stop_requested.wait(self._interval_seconds):
            point_reached.send("watchdog:before_renew")  # a test can stop the thread here
            try:
                if not self._renew():
                    return
            except redis.RedisError as error:
                logger.warning(
                    "renewal failed, the next is due in %.3f s: %s", self._interval_seconds, error
                )
