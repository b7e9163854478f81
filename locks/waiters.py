"""The waiters of this process, and what they know of their locks. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary
from zlib import crc32

from .clock import now
from .protocol import Wake

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
            mailbox.put(None)

    def ask_at(self, token: bytes) -> float:
        """The second at which this waiter asks whether the holder's lease has ended.

        Where thousands wait and the first one's answer is late, the others do not ask all at once:
        each has its own moment, so that some 400 ask in a second.
        """
        if self._is_first(token):
            return self.until + 0.001
        crowd = len(self.waiters) // CROWD
        return self.until + STAGGER * (1 + crowd * (crc32(token) / 2**32) if crowd else 1)

    def _is_first(self, token: bytes) -> bool:
        try:
            return next(iter(self.waiters), token) == token
        except RuntimeError:  # one came or left, in another thread
            return False


class Waiters:
    """The waiters of this process on one channel. Each has a mailbox, of its driver's kind.

    channel    on which the wake-ups for them are published
    listening  whether it is subscribed
    """

    def __init__(self, make_mailbox: Callable[[], Any]) -> None:
        self.channel = b""
        self.listening = False
        self.mailboxes: dict[bytes, Any] = {}
        self._make_mailbox = make_mailbox
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

    def deliver(self, message: bytes) -> bytes | None:
        """Put a wake-up into its waiter's mailbox. Returns the token that has none any more."""
        try:
            token, wake = Wake.parse(message)
        except ValueError:
            logger.warning("not a wake-up: %r", message)
            return None
        mailbox = self.mailboxes.get(token)
        if mailbox is None:
            return token
        mailbox.put(wake)
        return None

    def all_ask(self) -> None:
        """The subscription broke: each of them has to ask again."""
        self.listening = False
        for watch in list(self._watches.values()):
            watch.recall()
