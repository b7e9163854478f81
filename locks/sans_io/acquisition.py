"""The decisions of an acquisition, without I/O, and the registry of this process's waiters.

`obtain` is a generator of steps. Its driver does each step, by blocking a thread
(client_resources.py) or by awaiting it (aio/), and sends the answer back in: one place decides.
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
from .protocol import LEAVE, STAY, Arg, Call, Wake, WireError, WireReply, milliseconds, queue_args
from .renewals import Renewals

logger = logging.getLogger(__name__)

#: Delay with which the waiters behind a process's first one poll for an expired holder.
STAGGER_SECONDS = 0.05
#: Maximum number of this process's waiters that poll within one stagger interval.
MAX_POLLS_PER_STAGGER = 20


class Watch:
    """The waiters of one process for one lock, and their knowledge of its holder.

    When a holder dies, the first waiter of each process polls as the holder's lease ends, and its
    other waiters see that these times have moved.

    Attributes:
        until: Second of our clock at which the holder's lease ends, as far as is known here.
        polled_at: Second of our clock at which the first waiter, or a waiter that was queued
            before, last polled. Newcomers do not move it: earlier waiters may have lost their
            places in the queue.
        recalled: Second of our clock at which all waiters were last made to poll.
        waiters: Their mailboxes by their tokens, in order of arrival.
    """

    def __init__(self) -> None:
        self.until = 0.0
        self.polled_at = 0.0
        self.recalled = 0.0
        self.waiters: dict[bytes, Any] = {}

    def recall(self) -> None:
        """Make all waiters poll again."""
        self.recalled = now()
        for mailbox in list(self.waiters.values()):
            mailbox.put_nowait(None)

    def is_first(self, token: bytes) -> bool:
        """Return whether this waiter came before all others that are here."""
        try:
            return next(iter(self.waiters), token) == token
        except RuntimeError:  # a waiter came or left in another thread
            return False

    def ask_at(self, token: bytes, ttl: float) -> float:
        """Return the second at which this waiter asks whether the holder's lease has ended.

        It asks at least once a ttl: the lease that it saw may have been extended, and its holder
        replaced since by a holder that died. Where thousands wait and the first waiter's answer is
        late, the polls of the remaining waiters are spread evenly, some 400 in a second.
        """
        due = min(self.until, self.polled_at + ttl)
        if self.is_first(token):
            return due + 0.001
        crowd = len(self.waiters) // MAX_POLLS_PER_STAGGER
        return due + STAGGER_SECONDS * (1 + crowd * (crc32(token) / 2**32) if crowd else 1)


class Waiters:
    """The waiters of this process on one channel, each with a mailbox that suits its driver.

    Attributes:
        channel: The channel on which wake-ups for the waiters are published.
        listening: Whether the channel is subscribed.
        mailboxes: The mailboxes of the waiters by their tokens.
        renewals: The renewals of this process. Their driver also releases the tokens that waiters
            abandoned: it still runs when the waiters are gone.
    """

    def __init__(self, make_mailbox: Callable[[], Any], renewals: Renewals) -> None:
        self.channel = b""
        self.listening = False
        self.mailboxes: dict[bytes, Any] = {}
        self._make_mailbox = make_mailbox
        self.renewals = renewals
        self._watches: WeakValueDictionary[bytes, Watch] = WeakValueDictionary()

    def join(self, key: bytes, token: bytes) -> tuple[Any, Watch]:
        """Register a waiter, before it asks to be queued.

        Call leave() afterwards, also after an exception of this method.

        Args:
            key: The key of the lock.
            token: The token of the waiter.

        Returns:
            The mailbox of the waiter, and the watch of the lock.
        """
        mailbox = self.mailboxes[token] = self._make_mailbox()
        watch = self._watches.setdefault(key, Watch())
        watch.waiters[token] = mailbox
        return mailbox, watch

    def leave(self, key: bytes, token: bytes) -> None:
        """Remove a waiter. A wake-up that still arrives for its token has no recipient."""
        self.mailboxes.pop(token, None)
        watch = self._watches.get(key)
        if watch is not None:
            watch.waiters.pop(token, None)

    def receive(self, message: Sequence[bytes]) -> None:
        """Put a wake-up that the subscription received into its waiter's mailbox.

        Raises ConnectionError if nothing more will be received.
        """
        if message[0] == b"sunsubscribe":
            raise ConnectionError("the slot has moved to another node")
        if message[0] not in (b"message", b"smessage"):
            return
        try:
            token, wake = Wake.parse(message[2])
        except ValueError:
            logger.warning("not a wake-up: %r", message[2])
            return
        mailbox = self.mailboxes.get(token)
        if mailbox is not None:
            mailbox.put_nowait(wake)
        else:
            # The waiter is gone. Release the lock granted to it, unless it acquired it by polling.
            self.renewals.release_abandoned(token.decode())

    def poll_all(self) -> None:
        """Make each waiter poll, because the subscription broke."""
        self.listening = False
        for watch in list(self._watches.values()):
            watch.recall()


#: Lower bound on the time that one command may take, even at the end of the wait.
SHORTEST_REPLY_SECONDS = 0.5


class Ask(NamedTuple):
    """A step that runs a script. The driver sends in its reply or throws a WireError in."""

    command: Call
    within: float  # seconds


class Listen(NamedTuple):
    """A step that subscribes. It ends at `until`, a second of our clock, or with a WireError."""

    until: float


class Sleep(NamedTuple):
    """A step that waits in the mailbox, for a wake-up or, with None, for the time to poll."""

    mailbox: Any


Step: TypeAlias = Ask | Listen | Sleep
Grant: TypeAlias = tuple[int | None, float]  # fence and deadline of the lease


class Acquisition:
    """One attempt of a new token to get the lock.

    Attributes:
        token: The token.
        started: Second of our clock at which the wait began.
        end: Second of our clock at which the wait ends.
        token_sent: Whether the server may know the token.
    """

    def __init__(self, lock: Options[Any], waiters: Waiters, wait: float | None) -> None:
        if wait is not None and not wait >= 0:
            raise ValueError(f"wait must be seconds from 0 on, or None, not {wait!r}")
        self.token = new_token().encode()
        self.started = now()
        self.end = math.inf if wait is None else self.started + wait
        self.token_sent = False
        self.keys = lock.keys
        self._once = wait == 0
        self._lock = lock
        self._waiters = waiters
        self._watch = Watch()

    def obtain(self) -> Generator[Step, Any, Grant | None]:
        """Return the steps of the acquisition. Their result is the grant, or None after the wait.

        They propagate WireError. The caller must call undo() after any exception.
        """
        if self._once or not self._waiters.listening:
            answer = yield from self.ask(STAY)
            if self._once or answer.fence is not None:
                return self._granted(answer)
        ttl, renewed_for = self._lock.ttl, self._lock.renewed_for
        try:
            mailbox, self._watch = self._waiters.join(self.keys[0], self.token)
            place = 0
            joined = math.inf
            while True:
                yield Listen(self.end)
                left = self.end - now()
                if left <= 0:
                    return self._granted((yield from self.ask(LEAVE)))
                channel = self._waiters.channel
                answer = yield from self.ask(*queue_args(channel, left, renewed_for, place))
                if answer.fence is not None:
                    return self._granted(answer)
                if answer.back and self._watch.recalled < joined:
                    self._watch.recall()  # the other waiters lost their places as well
                if place or self._watch.is_first(self.token):
                    self._watch.polled_at = answer.sent_at
                place = answer.place
                joined = answer.sent_at
                self._watch.until = answer.sent_at + (answer.left if answer.left >= 0 else ttl)
                wake: Wake | None = yield Sleep(mailbox)
                if wake is not None:
                    deadline = wake.deadline(answer, ttl, now())
                    if deadline is not None:
                        self._watch.until = now() + ttl
                        return wake.fence, deadline
        finally:
            self._waiters.leave(self.keys[0], self.token)

    def ask(self, *request: Arg) -> Generator[Step, Any, WireReply]:
        """Return the steps that run acquire.lua once. Their result is its reply."""
        sent_at = now()
        token_sent_before = self.token_sent
        self.token_sent = True
        lock = self._lock
        args = self.token, milliseconds(lock.ttl), milliseconds(lock.fence_ttl), *request
        try:
            reply = yield Ask(
                lock.command("acquire", *args), max(SHORTEST_REPLY_SECONDS, self.end - sent_at)
            )
        except WireError as error:
            self.token_sent = token_sent_before or error.sent
            raise
        return WireReply.parse(sent_at, reply)

    def asks_at(self) -> float:
        """Return the second of our clock until which the waiter sleeps unless it is woken.

        Then the holder's lease has ended, a ttl has passed, or the wait is over.
        """
        return min(self.end, self._watch.ask_at(self.token, self._lock.ttl))

    def undo(self) -> Ask | None:
        """Return the command that leaves the queue, and gives the lock back if it is ours.

        Pass its reply to undone().

        Returns:
            The step, or None if the server cannot know the token.
        """
        if not self.token_sent:
            return None
        return Ask(self._lock.build_release(self.token), SHORTEST_REPLY_SECONDS)

    def undone(self, reply: Any, *, in_order: bool = False) -> None:
        """Evaluate the reply to the command of undo().

        Args:
            reply: The reply, or the exception in its place.
            in_order: Whether the server certainly executed the command after every earlier one.
        """
        if isinstance(reply, WireError):
            logger.warning("%s: gave up, the server does not know yet: %s", self._lock.name, reply)
        settled = reply == 1 or (in_order and isinstance(reply, int))
        if not settled:  # a command that got no answer may be executed later
            self._waiters.renewals.abandon(self.token.decode(), self._lock)

    def _granted(self, answer: WireReply) -> Grant | None:
        return None if answer.fence is None else (answer.fence, answer.deadline(self._lock.ttl))
