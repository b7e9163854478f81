"""One acquire, without I/O: what to do next, and what each answer means; and who waits here.

`obtain` is a generator of steps. Whoever runs it does each step, by blocking a thread (shared.py)
or by awaiting it (aio/), and sends the answer back in: so there is one place that decides.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary
from zlib import crc32

from .lease import new_token
from .protocol import LEAVE, STAY, Answer, Arg, Call, Wake, WireError, milliseconds, queue_args
from .renewals import Renewals
from .support import now

if TYPE_CHECKING:
    from .lock import Options

logger = logging.getLogger(__name__)

#: Seconds by which the waiters behind a process's first one look later for an expired holder.
STAGGER = 0.05
#: So many waiters of a process may ask within one STAGGER.
CROWD = 20


class Watch:
    """What the waiters of one process know together about the lock that they wait for.

    until     second of our clock at which the holder's lease ends, as far as anybody here knows
    waiters   their mailboxes by their tokens, in order of arrival
    recalled  second of our clock at which all of them were last told to ask

    When a holder dies, the first waiter of each process asks as its lease ends, and the others
    find that `until` has moved.
    """

    def __init__(self) -> None:
        self.until = 0.0
        self.recalled = 0.0
        self.waiters: dict[bytes, Any] = {}

    def recall(self) -> None:
        """Tell all of them to ask again."""
        self.recalled = now()
        for mailbox in list(self.waiters.values()):
            mailbox.put_nowait(None)

    def ask_at(self, token: bytes) -> float:
        """The second at which this waiter asks whether the holder's lease has ended.

        Where thousands wait and the first one's answer is late, the others do not ask all at once:
        each has its own moment, so that some 400 ask in a second.
        """
        with suppress(RuntimeError):  # one came or left, in another thread: not known who is first
            if next(iter(self.waiters), token) == token:
                return self.until + 0.001
        crowd = len(self.waiters) // CROWD
        return self.until + STAGGER * (1 + crowd * (crc32(token) / 2**32) if crowd else 1)


class Waiters:
    """The waiters of this process on one channel. Each has a mailbox, of its driver's kind.

    channel    on which the wake-ups for them are published
    listening  whether it is subscribed
    renewals   take over what those that gave up could not clean up
    """

    def __init__(self, make_mailbox: Callable[[], Any], renewals: Renewals) -> None:
        self.channel = b""
        self.listening = False
        self.mailboxes: dict[bytes, Any] = {}
        self._make_mailbox = make_mailbox
        self.renewals = renewals
        self._watches: WeakValueDictionary[bytes, Watch] = WeakValueDictionary()

    def join(self, key: bytes, token: bytes) -> tuple[Any, Watch]:
        """Register a waiter, before it asks to be queued. leave() undoes it, halfway too."""
        mailbox = self.mailboxes[token] = self._make_mailbox()
        watch = self._watches.setdefault(key, Watch())
        watch.waiters[token] = mailbox
        return mailbox, watch

    def leave(self, key: bytes, token: bytes) -> None:
        """Remove a waiter. A wake-up that still arrives for its token belongs to nobody."""
        self.mailboxes.pop(token, None)
        watch = self._watches.get(key)
        if watch is not None:
            watch.waiters.pop(token, None)

    def receive(self, message: Sequence[bytes]) -> None:
        """What the subscription received: put a wake-up into its waiter's mailbox.

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
        else:  # if it gave up; not a token that got the lock by asking
            self.renewals.release_abandoned(token.decode())

    def all_ask(self) -> None:
        """The subscription broke: each of them has to ask again."""
        self.listening = False
        for watch in list(self._watches.values()):
            watch.recall()


#: Seconds that one command may take at least, however little is left of the wait.
FLOOR = 0.5


class Ask(NamedTuple):
    """Run this script. Answer: its reply; or a WireError is thrown in."""

    command: Call
    within: float  # seconds


class Listen(NamedTuple):
    """Subscribe. Answer at the latest at that second of our clock, or a WireError is thrown in."""

    until: float


class Sleep(NamedTuple):
    """Wait in the mailbox. Answer: the wake-up, or None when it is time to ask."""

    mailbox: Any


Step: TypeAlias = Ask | Listen | Sleep
Grant: TypeAlias = tuple[int | None, float]  # fence and deadline of the lease


class Acquisition:
    """A new token that wants the lock, from now on.

    waiters  of this process, where the wake-up for the token arrives
    wait     seconds, None: no end
    started  second of our clock at which the wait began
    end      second of our clock at which it is over
    known    whether the server may know the token

    Raises ValueError for a wait that makes no sense.
    """

    def __init__(self, lock: Options[Any], waiters: Waiters, wait: float | None) -> None:
        if wait is not None and not wait >= 0:
            raise ValueError(f"wait is {wait!r}: give seconds, 0 to try once, None for no end")
        self.token = new_token().encode()
        self.started = now()
        self.end = math.inf if wait is None else self.started + wait
        self.known = False
        self.keys = lock.keys
        self._once = wait == 0
        self._lock = lock
        self._waiters = waiters
        self._watch = Watch()

    def obtain(self) -> Generator[Step, Any, Grant | None]:
        """The steps that lead to the lease, or to None if the wait was over first.

        Passes a WireError on. After any exception undo it: see undo().
        """
        if self._once or not self._waiters.listening:
            answer = yield from self.ask(STAY)
            if self._once or answer.fence is not None:
                return self._granted(answer)
        ttl, renewed_for = self._lock.ttl, self._lock.renewed_for
        try:
            mailbox, self._watch = self._waiters.join(self.keys[0], self.token)
            place, joined = 0, math.inf
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
                    self._watch.recall()  # what took us out of the queue took out the others, too
                place, joined = answer.place, answer.asked
                self._watch.until = answer.asked + (answer.left if answer.left >= 0 else ttl)
                wake: Wake | None = yield Sleep(mailbox)
                if wake is not None:
                    deadline = wake.deadline(answer, ttl, now())
                    if deadline is not None:
                        self._watch.until = now() + ttl
                        return wake.fence, deadline
        finally:
            self._waiters.leave(self.keys[0], self.token)

    def ask(self, *what: Arg) -> Generator[Step, Any, Answer]:
        """The meaning of acquire.lua's reply."""
        asked = now()
        known, self.known = self.known, True
        lock = self._lock
        args = self.token, milliseconds(lock.ttl), milliseconds(lock.fence_ttl), *what
        try:
            reply = yield Ask(lock.command("acquire", *args), max(FLOOR, self.end - asked))
        except WireError as error:
            self.known = known or error.sent
            raise
        return Answer.parse(asked, reply)

    def asks_at(self) -> float:
        """The second of our clock until which a waiter sleeps that is not woken: then the holder's
        lease has ended, or the wait is over."""
        return min(self.end, self._watch.ask_at(self.token))

    def undo(self) -> Ask | None:
        """The command that leaves the queue, and gives the lock back if it is ours nevertheless.

        None if the server cannot know of us. Pass its answer to undone().
        """
        return Ask(self._lock.release_of(self.token), FLOOR) if self.known else None

    def undone(self, reply: Any, *, in_order: bool = False) -> None:
        """The reply to undo(), or the exception in its place.

        in_order  whether it was certainly executed after every command sent before it
        """
        if isinstance(reply, WireError):
            logger.warning("%s: gave up, the server does not know yet: %s", self._lock.name, reply)
        settled = reply == 1 or (in_order and isinstance(reply, int))
        if not settled:  # a command that got no answer may be executed later
            self._waiters.renewals.abandon(self.token.decode(), self._lock)

    def _granted(self, answer: Answer) -> Grant | None:
        return None if answer.fence is None else (answer.fence, answer.deadline(self._lock.ttl))
