"""RedisLock: the lock to copy. One Redis or Valkey server, first in first out, fenced, renewed.

Who holds the lock stands in the data, in a key with an expiry. Whoever finds it taken queues in
the same script; the script that releases it gives it to the first waiter that is alive and still
wants it, and wakes that one (wakeups.py). So a contended acquisition is two commands, nobody
barges in, and it costs the same however many wait. A thread renews what is held (watchdog.py).

    commands of two processes that want the lock

    A   acquire              the lock is ours
    B   acquire              queued, A's lease ends in 9.9 s; B waits in its own process
    A   release              the lock is B's from here on; a message wakes it
    B   release              nobody waits: deleted
"""

from __future__ import annotations

import inspect
import logging
import math
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from .clock import now
from .errors import LockBackendError, LockTimeout
from .lease import Lease, LossReason, Release, new_token
from .lock import Lock
from .metrics import Metrics, emit
from .protocol import (
    FENCE_TTL,
    LEAVE,
    STAY,
    Answer,
    Inspection,
    Wake,
    keys_of,
    milliseconds,
    queue_args,
)
from .scripts import script
from .shared import shared_of
from .wakeups import Watch
from .watchdog import Renewal
from .wire import Arg, WireError

if TYPE_CHECKING:
    from .wakeups import Mailbox

logger = logging.getLogger(__name__)

#: Seconds that one command may take at least, however little is left of the wait.
FLOOR = 0.5

_UNKNOWN = "the server was not reached or refused, nothing is known about the lock"


class Client(Protocol):
    """redis.Redis, or valkey.Valkey."""

    @property
    def connection_pool(self) -> Any: ...


class Attempt:
    """One acquire on its way: its token, when its wait is over, whether the server may know it."""

    __slots__ = ("end", "known", "token")

    def __init__(self, token: bytes, end: float) -> None:
        self.token = token
        self.end = end
        self.known = False


class RedisLock(Lock):
    """Mutual exclusion by name on one Redis, with a fence for the storage to check.

    client    a redis.Redis (or valkey.Valkey), which says where the server is and, by its
              socket_timeout, how long a silent one is waited for; the lock opens connections of its
              own, which all locks of one client share
    name      what is locked, any non-empty text
    ttl       seconds that the lock survives a holder that stopped answering
    renew     whether a living holder's lease is renewed each ttl / 3
    max_hold  seconds after which a lease is renewed no more, None: as long as its process lives
    fence_ttl seconds for which the last fence is remembered after its lock was last used, a week
              unless given; longer than any holder may be paused
    on_lost   called with the lease and a `LossReason` when it is lost, in another thread
    metrics   hooks, see `Metrics`

        lock = RedisLock(client, "product:42", ttl=10)
        with lock.hold(wait=5) as lease:
            ...  # UPDATE ... SET fence = lease.fence WHERE ... AND fence < lease.fence

    Raises ValueError and TypeError for arguments that cannot work. With unequal ttls under one
    name, a dead holder is replaced after the longest of them at the latest.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        ttl: float,
        renew: bool = True,
        max_hold: float | None = None,
        fence_ttl: float = FENCE_TTL,
        on_lost: Callable[[Lease, LossReason], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(name, ttl=ttl)
        pool = getattr(client, "connection_pool", None)
        kind = getattr(pool, "connection_class", None)
        if kind is None or inspect.iscoroutinefunction(kind.connect):
            raise TypeError(
                f"client is {type(client).__module__}.{type(client).__name__}: "
                "RedisLock needs a redis.Redis, not one for asyncio or a cluster"
            )
        if max_hold is not None and not max_hold >= ttl:
            raise ValueError(f"max_hold is {max_hold!r}: give seconds, at least the ttl of {ttl}")
        if not fence_ttl >= ttl or fence_ttl == math.inf:
            raise ValueError(f"fence_ttl is {fence_ttl!r}: give seconds, at least the ttl of {ttl}")
        self.client = client
        self.renew = renew
        self.max_hold = max_hold
        self.fence_ttl = fence_ttl
        self.on_lost = on_lost
        self.metrics = metrics
        self._keys = keys_of(name)
        self._shared = shared_of(pool)  # keeps the three alive
        self._server = self._shared.connections
        self._wakeups = self._shared.wakeups
        self._watchdog = self._shared.watchdog

    def acquire(self, wait: float | None) -> Lease:
        """Take the lock, queueing for at most `wait` seconds (None: as long as it takes).

        Raises LockTimeout when the wait is over, LockBackendError when the server is not reached
        or refuses. In both cases, and on any other exception, nothing is left in the queue once
        the server answers again. A silent server is waited for until the end of the wait, but at
        least 0.5 s and at most the client's socket_timeout; then once more for 0.5 s.
        """
        if wait is not None and not wait >= 0:
            raise ValueError(f"wait is {wait!r}: give seconds, 0 to try once, None for no end")
        started = now()
        token = new_token()
        attempt = Attempt(token.encode(), math.inf if wait is None else started + wait)
        lease = None
        try:
            lease = self._lease(token, self._obtain(attempt, once=wait == 0), started)
        except WireError as error:
            self._cancel(attempt)
            text = f"{_UNKNOWN}: {error}"
            raise LockBackendError(text, name=self.name) from error.__cause__
        except BaseException:
            self._cancel(attempt)
            raise
        finally:
            emit(self.metrics, "waited", self.name, now() - started, lease is not None)
        if lease is None:
            logger.debug("%s: not free within %s s", self.name, wait)
            raise LockTimeout(name=self.name)
        return lease

    def locked(self) -> bool:
        """Whether anybody holds the lock now. Raises LockBackendError."""
        return self.inspect().owner is not None

    def inspect(self) -> Inspection:
        """Who holds the lock and who waits for it. Changes nothing. Raises LockBackendError."""
        try:
            return Inspection.parse(self._call("inspect"))
        except WireError as error:
            text = f"{_UNKNOWN}: {error}"
            raise LockBackendError(text, name=self.name) from error.__cause__

    def _obtain(self, attempt: Attempt, *, once: bool) -> tuple[int, float] | None:
        """Fence and deadline of the lease, or None if the wait was over first."""
        if once or not self._wakeups.listening:
            answer = self._ask(attempt, STAY)
            if once or answer.fence is not None:
                return self._granted(answer)
        try:
            mailbox, watch = self._wakeups.join(self._keys[0], attempt.token)
            return self._queue(attempt, mailbox, watch)
        finally:
            self._wakeups.leave(self._keys[0], attempt.token)

    def _queue(self, attempt: Attempt, mailbox: Mailbox, watch: Watch) -> tuple[int, float] | None:
        while True:
            self._wakeups.listen(attempt.end)
            left = attempt.end - now()
            if left <= 0:
                return self._granted(self._ask(attempt, LEAVE))
            answer = self._ask(attempt, *queue_args(self._wakeups.channel, left))
            if answer.fence is not None:
                return self._granted(answer)
            watch.until = answer.asked + (answer.left if answer.left >= 0 else self.ttl)
            wake = _sleep(attempt, mailbox, watch)
            if wake is not None:
                deadline = wake.deadline(answer, self.ttl, now())
                if deadline is not None:
                    watch.until = now() + self.ttl
                    return wake.fence, deadline

    def _granted(self, answer: Answer) -> tuple[int, float] | None:
        return None if answer.fence is None else (answer.fence, answer.deadline(self.ttl))

    def _ask(self, attempt: Attempt, *what: Arg) -> Answer:
        asked = now()
        known, attempt.known = attempt.known, True
        try:
            within = max(FLOOR, attempt.end - asked)
            args = attempt.token, milliseconds(self.ttl), milliseconds(self.fence_ttl), *what
            return Answer.parse(asked, self._call("acquire", *args, within=within))
        except WireError as error:
            attempt.known = known or error.sent
            raise

    def _lease(self, token: str, granted: tuple[int, float] | None, started: float) -> Lease | None:
        if granted is None:
            return None
        fence, deadline = granted
        lease = Lease(
            name=self.name,
            token=token,
            fence=fence,
            deadline=deadline,
            release=self._release,
            waited_seconds=now() - started,
            on_lost=self._lost if self.on_lost or self.metrics else None,
        )
        stop = math.inf if self.max_hold is None else now() + self.max_hold
        self._watchdog.add(
            Renewal(
                lease,
                key=self._keys[0],
                ttl=self.ttl,
                stop=stop if self.renew else 0.0,
                metrics=self.metrics,
            )
        )
        return lease

    def _lost(self, lease: Lease, reason: LossReason) -> None:
        emit(self.metrics, "lost", self.name, reason)
        if self.on_lost is not None:
            self.on_lost(lease, reason)

    def _release(self, lease: Lease) -> Release:
        self._watchdog.remove(lease.token)
        asked_before = lease.outcome is Release.UNKNOWN
        outcome = Release.UNKNOWN
        try:
            if self._call("release", lease.token, milliseconds(self.fence_ttl)) == 1:
                outcome = Release.RELEASED
            elif not asked_before:  # else it may have been the release before that freed it
                outcome = Release.EXPIRED
        except WireError as error:
            logger.warning("%s: not released, its ttl ends it: %s", self.name, error)
        emit(self.metrics, "held", self.name, lease.held_seconds, outcome)
        return outcome

    def _cancel(self, attempt: Attempt) -> None:
        """Leave the queue, and give the lock back if it is, or becomes, ours nevertheless."""
        if not attempt.known:
            return
        args = attempt.token, milliseconds(self.fence_ttl)
        ours = False
        try:
            ours = self._call("release", *args, within=FLOOR) == 1
        except WireError as error:
            logger.warning("%s: gave up, the server does not know yet: %s", self.name, error)
        finally:
            if not ours:  # a command that got no answer may be executed later
                self._watchdog.abandon(attempt.token, self._keys, args, ttl=self.ttl)

    def _call(self, name: str, *args: Arg, within: float | None = None) -> Any:
        return self._server.call(script(name), self._keys, args, within=within)


def _sleep(attempt: Attempt, mailbox: Mailbox, watch: Watch) -> Wake | None:
    """The wake-up, or None when it is time to ask: the subscription broke, the holder's lease ended
    or the wait is over."""
    while True:
        left = min(attempt.end, watch.ask_at(attempt.token)) - now()
        if left <= 0:
            return None
        try:
            return mailbox.get(timeout=min(left, threading.TIMEOUT_MAX))
        except queue.Empty:
            continue
