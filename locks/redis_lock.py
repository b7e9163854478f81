"""RedisLock: the lock to copy. One Redis or Valkey server, first in first out, fenced, renewed.

Who holds the lock stands in the data, in a key with an expiry. Whoever finds it taken queues in
the same script; the script that releases it hands it to the first waiter that lives and still
wants it, and wakes that one (wakeups.py). So a contended acquisition is two commands, nobody
barges in, and it costs the same however many wait. A thread renews what is held (watchdog.py).

    commands of two processes that want the lock

    A   acquire              the lock is ours
    B   acquire              queued, A's lease ends in 9.9 s; B waits in its own process
    A   release              the lock is B's from here on; its process is told
    B   release              nobody waits: deleted
"""

from __future__ import annotations

import logging
import math
import queue
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import redis

from .errors import LockBackendError, LockTimeout
from .lease import Lease, LossReason, Release, new_token
from .lock import Lock
from .metrics import Metrics, tell
from .protocol import (
    COUNT_RECEIVERS,
    FENCE_MEMORY_MS,
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
from .wakeups import Watch, wakeups_of
from .watchdog import Renewal, watchdog
from .wire import Arg, server_of

if TYPE_CHECKING:
    from .wakeups import Mailbox

logger = logging.getLogger(__name__)

_UNKNOWN = "the server was not reached or refused, nothing is known about the lock"


class RedisLock(Lock):
    """Mutual exclusion by name on one Redis, with a fence for the storage to check.

    client    a redis.Redis, which says where the server is and how long a silent one is waited for;
              the lock opens connections of its own
    name      what is locked, any non-empty text
    ttl       seconds that the lock survives a holder that stopped answering
    renew     whether a living holder's lease is renewed each ttl / 3
    max_hold  seconds after which a lease is renewed no more, None: as long as its process lives
    on_lost   called with the lease and a `LossReason` when it is lost, in a thread of its own
    metrics   hooks, see `Metrics`

        lock = RedisLock(client, "product:42", ttl=10)
        with lock.hold(wait=5) as lease:
            ...  # UPDATE ... SET fence = lease.fence WHERE ... AND fence < lease.fence

    Raises ValueError and TypeError for arguments that cannot work. With unequal ttls under one
    name, a dead holder is replaced after the longest of them at the latest.
    """

    def __init__(
        self,
        client: redis.Redis,
        name: str,
        *,
        ttl: float,
        renew: bool = True,
        max_hold: float | None = None,
        on_lost: Callable[[Lease, LossReason], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(name, ttl=ttl)
        if not isinstance(client, redis.Redis):
            raise TypeError(f"client is {type(client).__name__}: RedisLock needs a redis.Redis")
        if client.connection_pool.connection_kwargs.get("socket_timeout", 0) is None:
            raise ValueError(
                "the client waits for ever for a silent server: give it a timeout, "
                "for instance redis.Redis(socket_timeout=5)"
            )
        if max_hold is not None and not max_hold >= ttl:
            raise ValueError(f"max_hold is {max_hold!r}: give seconds, at least the ttl of {ttl}")
        self.client = client
        self.renew = renew
        self.max_hold = max_hold
        self.on_lost = on_lost
        self.metrics = metrics
        self._keys = keys_of(name)
        self._server = server_of(client)
        self._wakeups = wakeups_of(self._server)

    def acquire(self, wait: float | None) -> Lease:
        """Take the lock, queueing for at most `wait` seconds (None: as long as it takes).

        Raises LockTimeout when the wait is over, LockBackendError when the server is not reached
        or refuses. In both cases, and on any other exception, nothing is left in the queue if the
        server can be told.
        """
        if wait is not None and not wait >= 0:
            raise ValueError(f"wait is {wait!r}: give seconds, 0 to try once, None for no end")
        started = time.monotonic()
        end = math.inf if wait is None else started + wait
        token = new_token()
        lease = None
        try:
            lease = self._lease(token, self._obtain(token.encode(), end, once=wait == 0), started)
        except redis.RedisError as error:
            self._cancel(token)
            raise LockBackendError(f"{_UNKNOWN}: {error}", name=self.name) from error
        except BaseException:
            self._cancel(token)
            raise
        finally:
            tell(self.metrics, "waited", self.name, time.monotonic() - started, lease is not None)
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
        except redis.RedisError as error:
            raise LockBackendError(f"{_UNKNOWN}: {error}", name=self.name) from error

    def _obtain(self, token: bytes, end: float, *, once: bool) -> tuple[int, float] | None:
        """Fence and deadline of the lease, or None if the wait was over first."""
        if once or not self._wakeups.listening:
            answer = self._ask(token, STAY)
            if once or answer.fence is not None:
                return self._granted(answer)
        mailbox, watch = self._wakeups.join(self._keys[0], token)
        try:
            return self._queue(token, end, mailbox, watch)
        finally:
            self._wakeups.leave(token, watch)

    def _queue(
        self, token: bytes, end: float, mailbox: Mailbox, watch: Watch
    ) -> tuple[int, float] | None:
        while True:
            self._wakeups.listen(end)
            left = end - time.monotonic()
            if left <= 0:
                return self._granted(self._ask(token, LEAVE))
            answer = self._ask(token, *queue_args(self._wakeups.channel, left))
            if answer.fence is not None:
                return self._granted(answer)
            watch.until = answer.asked + (answer.left if answer.left >= 0 else self.ttl)
            wake = _sleep(token, end, mailbox, watch)
            if wake is not None:
                now = time.monotonic()
                deadline = wake.deadline(answer, self.ttl, now)
                if deadline is not None:
                    watch.until = now + self.ttl
                    return wake.fence, deadline

    def _granted(self, answer: Answer) -> tuple[int, float] | None:
        return None if answer.fence is None else (answer.fence, answer.deadline(self.ttl))

    def _ask(self, token: bytes, *what: Arg) -> Answer:
        asked = time.monotonic()
        common = token, milliseconds(self.ttl), FENCE_MEMORY_MS, COUNT_RECEIVERS
        return Answer.parse(asked, self._call("acquire", *common, *what))

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
            waited_seconds=time.monotonic() - started,
            on_lost=self._lost if self.on_lost or self.metrics else None,
        )
        stop = math.inf if self.max_hold is None else time.monotonic() + self.max_hold
        watchdog.add(
            Renewal(
                lease,
                server=self._server,
                key=self._keys[0],
                ttl=self.ttl,
                stop=stop if self.renew else 0.0,
                metrics=self.metrics,
            )
        )
        return lease

    def _lost(self, lease: Lease, loss: LossReason) -> None:
        tell(self.metrics, "lost", self.name, loss)
        if self.on_lost is not None:
            self.on_lost(lease, loss)

    def _release(self, lease: Lease) -> Release:
        watchdog.remove(lease.token)
        asked_before = lease.outcome is Release.UNKNOWN
        outcome = Release.UNKNOWN
        try:
            if self._call("release", lease.token, FENCE_MEMORY_MS, COUNT_RECEIVERS) == 1:
                outcome = Release.RELEASED
            elif not asked_before:  # else it may have been the release before that freed it
                outcome = Release.EXPIRED
        except redis.RedisError as error:
            logger.warning("%s: not released, its ttl ends it: %s", self.name, error)
        tell(self.metrics, "held", self.name, lease.held_seconds, outcome)
        return outcome

    def _cancel(self, token: str) -> None:
        """Leave the queue, and give the lock back if it was handed over meanwhile."""
        self._wakeups.abandon(token.encode(), self._keys)
        try:
            self._call("release", token, FENCE_MEMORY_MS, COUNT_RECEIVERS)
        except redis.RedisError as error:
            logger.warning("%s: cannot be told that we gave up: %s", self.name, error)
        else:
            self._wakeups.settled(token.encode())

    def _call(self, name: str, *args: Arg) -> Any:
        return self._server.call(script(name), self._keys, args)


def _sleep(token: bytes, end: float, mailbox: Mailbox, watch: Watch) -> Wake | None:
    """The wake-up, or None when it is time to ask: the subscription broke, the holder's lease ended
    or the wait is over."""
    while True:
        ask_at = min(end, watch.ask_at(token))
        left = ask_at - time.monotonic()
        if left <= 0:
            return None
        try:
            return mailbox.get(timeout=left)
        except queue.Empty:
            continue
