"""One acquire, without I/O: what to do next, and what each answer means.

`obtain` is a generator of steps. Whoever runs it does each step, by blocking a thread (blocking.py)
or by awaiting it (aio/), and sends the answer back in: so there is one place that decides.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias

from .clock import now
from .command import Arg, WireError
from .protocol import LEAVE, STAY, Answer, Wake, milliseconds, queue_args
from .renewals import Renewals
from .waiters import Waiters, Watch

logger = logging.getLogger(__name__)

#: Seconds that one command may take at least, however little is left of the wait.
FLOOR = 0.5


class Ask(NamedTuple):
    """Run this script on the lock's keys. Answer: its reply; or a WireError is thrown in."""

    script: str
    args: Sequence[Arg]
    within: float  # seconds


class Listen(NamedTuple):
    """Subscribe. Answer at the latest at that second of our clock, or a WireError is thrown in."""

    until: float


class Sleep(NamedTuple):
    """Wait in the mailbox. Answer: the wake-up, or None when it is time to ask."""

    mailbox: Any


Step: TypeAlias = Ask | Listen | Sleep
Grant: TypeAlias = tuple[int, float]  # fence and deadline of the lease


class Acquisition:
    """A token that wants the lock.

    waiters         of this process, where the wake-up for the token arrives
    renewals        take over what could not be cleaned up
    ttl, fence_ttl  seconds
    renewed_for     seconds for which the lease will be renewed, or inf
    end             second of our clock at which the wait is over
    known           whether the server may know the token
    """

    def __init__(
        self,
        waiters: Waiters,
        renewals: Renewals,
        name: str,
        keys: Sequence[bytes],
        token: str,
        *,
        ttl: float,
        fence_ttl: float,
        renewed_for: float,
        end: float,
    ) -> None:
        self.token = token.encode()
        self.end = end
        self.known = False
        self.keys = keys
        self._waiters = waiters
        self._renewals = renewals
        self._name = name
        self._ttl = ttl
        self._renewed_for = renewed_for
        self._fence_ttl = fence_ttl
        self._watch = Watch()

    def obtain(self, *, once: bool) -> Generator[Step, Any, Grant | None]:
        """The steps that lead to the lease, or to None if the wait was over first.

        Passes a WireError on. After any exception undo it: see undo().
        """
        if once or not self._waiters.listening:
            answer = yield from self.ask(STAY)
            if once or answer.fence is not None:
                return self._granted(answer)
        try:
            mailbox, self._watch = self._waiters.join(self.keys[0], self.token)
            place, joined = 0, math.inf
            while True:
                yield Listen(self.end)
                left = self.end - now()
                if left <= 0:
                    return self._granted((yield from self.ask(LEAVE)))
                channel = self._waiters.channel
                answer = yield from self.ask(*queue_args(channel, left, self._renewed_for, place))
                if answer.fence is not None:
                    return self._granted(answer)
                if answer.back and self._watch.recalled < joined:
                    self._watch.recall()  # what took us out of the queue took out the others, too
                place, joined = answer.place, answer.asked
                self._watch.until = answer.asked + (answer.left if answer.left >= 0 else self._ttl)
                wake: Wake | None = yield Sleep(mailbox)
                if wake is not None:
                    deadline = wake.deadline(answer, self._ttl, now())
                    if deadline is not None:
                        self._watch.until = now() + self._ttl
                        return wake.fence, deadline
        finally:
            self._waiters.leave(self.keys[0], self.token)

    def ask(self, *what: Arg) -> Generator[Step, Any, Answer]:
        """The meaning of acquire.lua's reply."""
        asked = now()
        known, self.known = self.known, True
        args = self.token, milliseconds(self._ttl), milliseconds(self._fence_ttl), *what
        try:
            reply = yield Ask("acquire", args, max(FLOOR, self.end - asked))
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
        args = self.token, milliseconds(self._fence_ttl)
        return Ask("release", args, FLOOR) if self.known else None

    def undone(self, reply: Any, *, in_order: bool = False) -> None:
        """The reply to undo(), or the exception in its place.

        in_order  whether it was certainly executed after every command sent before it
        """
        if isinstance(reply, WireError):
            logger.warning("%s: gave up, the server does not know yet: %s", self._name, reply)
        settled = reply == 1 or (in_order and isinstance(reply, int))
        if not settled:  # a command that got no answer may be executed later
            token, fence_ttl = self.token.decode(), self._fence_ttl
            self._renewals.abandon(token, self.keys, ttl=self._ttl, fence_ttl=fence_ttl)

    def _granted(self, answer: Answer) -> Grant | None:
        return None if answer.fence is None else (answer.fence, answer.deadline(self._ttl))
