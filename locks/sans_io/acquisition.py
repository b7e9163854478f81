"""The decisions of an acquisition, without I/O, and the registry of this process's waiters.

`Acquisition.obtain` is a generator of steps, such as sending a command. For a thread,
client_resources.py performs each step and sends its result into the generator; for asyncio,
aio/redis_lock.py does so. So threads and asyncio share every decision.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary
from zlib import crc32

from ..clock import now
from ..lease import new_token
from .options import Options
from .protocol import (
    LEAVE,
    STAY,
    Arg,
    Call,
    Wake,
    WireError,
    WireReply,
    build_queue_args,
    to_milliseconds,
)
from .renewals import Renewals

logger = logging.getLogger(__name__)

#: The first waiter of a process polls this long after the end of the holder's lease, because a key
#: expires with a precision of one millisecond.
EXPIRY_PRECISION_SECONDS = 0.001
#: The other waiters of a process poll at least this long after the end of the holder's lease. This
#: is longer than the usual round trip of the first waiter's poll.
STAGGER_SECONDS = 0.05
#: The polls of a process's other waiters are spread over several intervals of STAGGER_SECONDS,
#: about this many polls in each.
POLLS_PER_STAGGER = 20


class LockWaiters:
    """The waiters of one process for one lock, and the times at which they poll.

    When a holder dies, the first waiter of each process polls as soon as the holder's lease ends.
    Its reply moves the times at which the remaining waiters of the process poll.

    Attributes:
        lease_ends_at: Time of our clock at which the holder's lease ends, according to the last
            reply or wake-up. It is earlier if the holder's release might wake no waiter: see
            acquire.lua.
        polled_at: Time of our clock at which a waiter last polled. If a newcomer is not the first
            waiter, its poll does not count, because the reply does not show whether the earlier
            waiters still have their places in the queue.
        all_polled_at: Time of our clock at which all waiters were last made to poll.
        mailboxes: The mailboxes of the waiters by their tokens, in order of arrival.
    """

    def __init__(self) -> None:
        # The docstring of the class explains these times.
        self.lease_ends_at = 0.0
        self.polled_at = 0.0
        self.all_polled_at = 0.0
        self.mailboxes: dict[bytes, Any] = {}

    def make_all_poll(self) -> None:
        """Make all waiters poll again, by a None in each mailbox."""
        self.all_polled_at = now()
        for mailbox in list(self.mailboxes.values()):
            mailbox.put_nowait(None)

    def is_first(self, token: bytes) -> bool:
        """Return whether no other waiter of this process has waited longer for the lock.

        The result is also True if there are no waiters. If another thread adds or removes a waiter
        at the same moment, the result is False.
        """
        try:
            return next(iter(self.mailboxes), token) == token
        except RuntimeError:  # the dict has changed during the iteration
            return False

    def compute_poll_time(self, token: bytes, ttl: float) -> float:
        """Return the time of our clock at which this waiter polls.

        The first waiter polls at least once per ttl, because `lease_ends_at` may be outdated and
        far too late. For example, a holder extended its lease, but released the lock early, and the
        next holder died.

        The reply to the first waiter's poll postpones the polls of the other waiters. They only
        poll if that reply is late. Their polls are then spread over a time that grows with their
        number, so that even thousands of waiters send only about 400 polls per second.

        Args:
            token: The token of the waiter.
            ttl: The ttl of the waiter's lock in seconds.
        """
        due = min(self.lease_ends_at, self.polled_at + ttl)
        if self.is_first(token):
            return due + EXPIRY_PRECISION_SECONDS
        waiter_count = len(self.mailboxes)
        spread_seconds = waiter_count // POLLS_PER_STAGGER * STAGGER_SECONDS
        share = crc32(token) / 2**32  # from 0 to 1, evenly distributed over the tokens
        return due + STAGGER_SECONDS + spread_seconds * share


class ChannelWaiters:
    """The waiters of this process on one channel, each with a mailbox.

    Attributes:
        channel: The channel on which wake-ups for the waiters are published.
        is_listening: Whether the channel is subscribed.
        mailboxes: The mailboxes of the waiters by their tokens.
        renewals: The renewals of this process. The thread or task that sends them also releases the
            tokens that waiters abandoned, because it still runs when the waiters are gone.
    """

    def __init__(self, make_mailbox: Callable[[], Any], renewals: Renewals) -> None:
        self.channel = b""
        self.is_listening = False
        self.mailboxes: dict[bytes, Any] = {}
        self._make_mailbox = make_mailbox
        self.renewals = renewals
        self._lock_waiters_by_key: WeakValueDictionary[bytes, LockWaiters] = WeakValueDictionary()

    def join(self, key: bytes, token: bytes) -> tuple[Any, LockWaiters]:
        """Register a waiter before its first command that asks for a place in the queue.

        Call leave() in a `finally` clause afterwards, even if this method raises an exception.

        Args:
            key: The key of the lock.
            token: The token of the waiter.

        Returns:
            The mailbox of the waiter, and the waiters of the same lock.
        """
        mailbox = self.mailboxes[token] = self._make_mailbox()
        lock_waiters = self._lock_waiters_by_key.setdefault(key, LockWaiters())
        lock_waiters.mailboxes[token] = mailbox
        return mailbox, lock_waiters

    def leave(self, key: bytes, token: bytes) -> None:
        """Remove a waiter. receive() then finds no mailbox for its token."""
        self.mailboxes.pop(token, None)
        lock_waiters = self._lock_waiters_by_key.get(key)
        if lock_waiters is not None:
            lock_waiters.mailboxes.pop(token, None)

    def receive(self, message: Sequence[bytes]) -> None:
        """Put a wake-up that the subscription received into its waiter's mailbox.

        Args:
            message: A message of the subscription: its kind, its channel and, if the kind is
                message or smessage, the wake-up. Other kinds are ignored.

        Raises:
            ConnectionError: The subscription ended, because its slot moved.
        """
        kind = message[0]
        if kind == b"sunsubscribe":
            raise ConnectionError("the slot has moved to another node")
        if kind not in (b"message", b"smessage"):
            return
        _, _, packed_wake = message
        try:
            token, wake = Wake.parse(packed_wake)
        except ValueError:
            logger.warning("a message on the wake-up channel is not a wake-up: %r", packed_wake)
            return
        mailbox = self.mailboxes.get(token)
        if mailbox is not None:
            mailbox.put_nowait(wake)
        else:
            # The waiter is gone. If it gave up, its token is abandoned, so the lock that was just
            # granted to the token is released now. If the waiter got the lock by polling, its token
            # is not abandoned, and nothing happens.
            self.renewals.release_abandoned(token.decode())

    def make_all_poll(self) -> None:
        """Make each waiter poll, because the subscription broke."""
        self.is_listening = False
        for lock_waiters in list(self._lock_waiters_by_key.values()):
            lock_waiters.all_polled_at = now()
        # The mailboxes of all LockWaiters in the dict would not be enough. If two threads join at
        # the same moment, each may get a new LockWaiters, and the dict keeps only one of the two.
        for mailbox in list(self.mailboxes.values()):
            mailbox.put_nowait(None)


#: Time that a command may take even at the end of the wait, so that a healthy server can answer. A
#: shorter socket_timeout of the client still applies.
MIN_REPLY_TIMEOUT_SECONDS = 0.5


class RunScript(NamedTuple):
    """A step that runs a script. Its result is the reply; without a reply it raises WireError."""

    command: Call
    timeout: float  # seconds


class Listen(NamedTuple):
    """A step that waits until the wake-ups are subscribed. It may raise WireError."""

    until: float  # the time of our clock at which this wait ends in any case


class Sleep(NamedTuple):
    """A step that waits for a message. Its result is a wake-up, or None when it is time to poll."""

    mailbox: Any


Step: TypeAlias = RunScript | Listen | Sleep
Grant: TypeAlias = tuple[int | None, float]  # fence and deadline of the lease


class Acquisition:
    """One attempt to acquire a lock, under a new token.

    Args:
        lock: The lock.
        waiters: The waiters of this process, which the attempt joins if the lock is taken.
        wait: Seconds to wait at most. 0: try once. None: no limit.

    Attributes:
        token: The token.
        started_at: Time of our clock at which the wait began.
        ends_at: Time of our clock at which the wait ends.
        token_sent: Whether a command with the token may have reached the server.
        keys: The keys of the lock in Redis.
    """

    def __init__(self, lock: Options[Any], waiters: ChannelWaiters, wait: float | None) -> None:
        if wait is not None and not wait >= 0:  # also refuses NaN
            raise ValueError(f"wait must be None or at least 0 seconds, not {wait!r}")
        self.token = new_token().encode()
        self.started_at = now()
        self.ends_at = math.inf if wait is None else self.started_at + wait
        self.token_sent = False
        self.keys = lock.keys
        self._tries_once = wait == 0
        self._lock = lock
        self._waiters = waiters
        self._lock_waiters = LockWaiters()  # empty until obtain() joins the waiters of this lock

    def obtain(self) -> Generator[Step, Any, Grant | None]:
        """Yield the steps of the acquisition.

        After any exception the caller must send the command of build_undo().

        Returns:
            The grant, or None if the wait ended first.

        Raises:
            WireError: A step raised it.
        """
        if self._tries_once or not self._waiters.is_listening:
            # If the lock is free, it can be acquired without a subscription.
            reply = yield from self.request_lock(STAY)
            if self._tries_once or reply.fence is not None:
                return self._make_grant(reply)
        ttl = self._lock.ttl
        renewed_for = self._lock.renewed_for
        try:
            mailbox, self._lock_waiters = self._waiters.join(self.keys[0], self.token)
            place = 0  # not in the queue yet
            queued_at = math.inf  # the first reply sets it
            while True:
                yield Listen(self.ends_at)
                seconds_left = self.ends_at - now()
                if seconds_left <= 0:
                    reply = yield from self.request_lock(LEAVE)
                    return self._make_grant(reply)
                channel = self._waiters.channel
                request = build_queue_args(channel, seconds_left, renewed_for, place)
                reply = yield from self.request_lock(*request)
                if reply.fence is not None:
                    return self._make_grant(reply)
                if reply.was_removed and self._lock_waiters.all_polled_at < queued_at:
                    # The other waiters have probably lost their places as well, and have not been
                    # made to poll since this waiter was queued.
                    self._lock_waiters.make_all_poll()
                # A waiter's first request adds it at the end of the queue. So the reply does not
                # show whether the waiters before it still have their places.
                was_queued = place != 0
                if was_queued or self._lock_waiters.is_first(self.token):
                    self._lock_waiters.polled_at = reply.sent_at
                place = reply.place
                queued_at = reply.sent_at
                # Another program may lock the key without an expiry, and delete it at any time. So
                # poll once per ttl then.
                lease_seconds = reply.lease_seconds_left if reply.lease_seconds_left >= 0 else ttl
                self._lock_waiters.lease_ends_at = reply.sent_at + lease_seconds
                wake: Wake | None = yield Sleep(mailbox)
                if wake is not None:
                    deadline = wake.compute_deadline(reply, ttl, now())
                    if deadline is not None:  # otherwise ask the server again
                        self._lock_waiters.lease_ends_at = now() + ttl
                        return wake.fence, deadline
        finally:
            self._waiters.leave(self.keys[0], self.token)

    def request_lock(self, *request: Arg) -> Generator[Step, Any, WireReply]:
        """Yield the step that runs acquire.lua, and return the parsed reply.

        Args:
            *request: What the script does with the waiter if the lock is taken: STAY, LEAVE or the
                arguments that build_queue_args() returns.
        """
        sent_at = now()
        token_sent_before = self.token_sent
        self.token_sent = True
        lock = self._lock
        args = self.token, to_milliseconds(lock.ttl), to_milliseconds(lock.fence_ttl), *request
        timeout = max(MIN_REPLY_TIMEOUT_SECONDS, self.ends_at - sent_at)
        try:
            reply = yield RunScript(lock.build_call("acquire", *args), timeout)
        except WireError as error:
            self.token_sent = token_sent_before or error.sent
            raise
        return WireReply.parse(sent_at, reply)

    def compute_poll_time(self) -> float:
        """Return the time of our clock at which the waiter polls unless a message arrives first.

        At that time the holder's lease has ended, the last poll was one ttl ago, or the wait is
        over.
        """
        return min(self.ends_at, self._lock_waiters.compute_poll_time(self.token, self._lock.ttl))

    def build_undo(self) -> RunScript | None:
        """Return the step that leaves the queue, and releases the lock if it was granted.

        Pass its reply to evaluate_undo().

        Returns:
            The step, or None if no command with the token can have reached the server.
        """
        if not self.token_sent:
            return None
        return RunScript(self._lock.build_release(self.token), MIN_REPLY_TIMEOUT_SECONDS)

    def evaluate_undo(self, reply: Any, *, in_order: bool = False) -> None:
        """Evaluate the reply to the command of build_undo().

        If the token may still have the lock or a place in the queue, it is abandoned: the watchdog
        then repeats its release.

        Args:
            reply: The reply, or the exception in its place.
            in_order: True if it is certain that the server executed this command after all earlier
                commands of the acquisition.
        """
        if isinstance(reply, WireError):
            text = "%s: a waiter gave up, but may still be in the queue: %s"
            logger.warning(text, self._lock.name, reply)
        # 1: the lock was released. Another integer: the token did not have the lock, and has left
        # the queue. But then an earlier command may still be executed, and put the token into the
        # queue again, unless the commands were executed in order.
        is_undone = reply == 1 or (in_order and isinstance(reply, int))
        if not is_undone:
            self._waiters.renewals.abandon(self.token.decode(), self._lock)

    def _make_grant(self, reply: WireReply) -> Grant | None:
        """Return the grant that a reply contains, or None."""
        if reply.fence is None:
            return None
        return reply.fence, reply.compute_deadline(self._lock.ttl)
