"""One acquire on its way: ask, queue, sleep until woken, and clean up if it fails."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .clock import now
from .protocol import LEAVE, STAY, Answer, Wake, milliseconds, queue_args
from .scripts import script
from .shared import Shared
from .wakeups import Watch
from .wire import Arg, WireError

if TYPE_CHECKING:
    from .wakeups import Mailbox

logger = logging.getLogger(__name__)

#: Seconds that one command may take at least, however little is left of the wait.
FLOOR = 0.5


class Acquisition:
    """A token that wants the lock.

    name, keys      of the lock
    ttl, fence_ttl  seconds
    end             second of our clock at which the wait is over
    known           whether the server may know the token
    """

    def __init__(
        self,
        shared: Shared,
        name: str,
        keys: Sequence[bytes],
        token: str,
        *,
        ttl: float,
        fence_ttl: float,
        end: float,
    ) -> None:
        self.token = token.encode()
        self.end = end
        self.known = False
        self._shared = shared
        self._wakeups = shared.wakeups
        self._name = name
        self._keys = keys
        self._ttl = ttl
        self._fence_ttl_ms = milliseconds(fence_ttl)

    def obtain(self, *, once: bool) -> tuple[int, float] | None:
        """Fence and deadline of the lease, or None if the wait was over first.

        Raises WireError. After any exception call cancel().
        """
        if once or not self._wakeups.listening:
            answer = self.ask(STAY)
            if once or answer.fence is not None:
                return self._granted(answer)
        try:
            mailbox, watch = self._wakeups.join(self._keys[0], self.token)
            return self._queue(mailbox, watch)
        finally:
            self._wakeups.leave(self._keys[0], self.token)

    def ask(self, *what: Arg) -> Answer:
        """What acquire.lua answers. Raises WireError."""
        asked = now()
        known, self.known = self.known, True
        try:
            args = self.token, milliseconds(self._ttl), self._fence_ttl_ms, *what
            reply = self._call("acquire", *args, within=max(FLOOR, self.end - asked))
            return Answer.parse(asked, reply)
        except WireError as error:
            self.known = known or error.sent
            raise

    def cancel(self) -> None:
        """Leave the queue, and give the lock back if it is, or becomes, ours nevertheless."""
        if not self.known:
            return
        args = self.token, self._fence_ttl_ms
        ours = False
        try:
            ours = self._call("release", *args, within=FLOOR) == 1
        except WireError as error:
            logger.warning("%s: gave up, the server does not know yet: %s", self._name, error)
        finally:
            if not ours:  # a command that got no answer may be executed later
                self._shared.watchdog.abandon(self.token, self._keys, args, ttl=self._ttl)

    def _queue(self, mailbox: Mailbox, watch: Watch) -> tuple[int, float] | None:
        while True:
            self._wakeups.listen(self.end)
            left = self.end - now()
            if left <= 0:
                return self._granted(self.ask(LEAVE))
            answer = self.ask(*queue_args(self._wakeups.channel, left))
            if answer.fence is not None:
                return self._granted(answer)
            watch.until = answer.asked + (answer.left if answer.left >= 0 else self._ttl)
            wake = _sleep(self, mailbox, watch)
            if wake is not None:
                deadline = wake.deadline(answer, self._ttl, now())
                if deadline is not None:
                    watch.until = now() + self._ttl
                    return wake.fence, deadline

    def _granted(self, answer: Answer) -> tuple[int, float] | None:
        return None if answer.fence is None else (answer.fence, answer.deadline(self._ttl))

    def _call(self, name: str, *args: Arg, within: float) -> Any:
        return self._shared.connections.call(script(name), self._keys, args, within=within)


def _sleep(acquisition: Acquisition, mailbox: Mailbox, watch: Watch) -> Wake | None:
    """The wake-up, or None when it is time to ask: the subscription broke, the holder's lease ended
    or the wait is over."""
    while True:
        left = min(acquisition.end, watch.ask_at(acquisition.token)) - now()
        if left <= 0:
            return None
        try:
            return mailbox.get(timeout=min(left, threading.TIMEOUT_MAX))
        except queue.Empty:
            continue
