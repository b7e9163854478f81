"""How a process learns that one of its waiters was given a lock.

One connection and one thread per process and server, started by the first waiter, listen on one
channel of this process. The release script publishes `token fence clock` there; the thread puts it
into the mailbox of the waiter with that token. No connection per waiter, and a process that died
has no subscription, which the release script sees at once.

Who holds the lock stands in the data: a waiter that gets no wake-up asks again when the holder's
lease ends, and all of them do when the subscription broke. What may be concluded from a wake-up
says Wake.deadline in protocol.py.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from .clock import now
from .lazily import lazily
from .protocol import Wake
from .watchdog import Watchdog
from .wire import Address, WireError, hang_up, has_moved, is_a, open_connection, set_timeout

logger = logging.getLogger(__name__)

#: Seconds without a message after which the connection is probed, and again until it is given up.
PROBE = 5.0
#: Seconds by which the waiters behind a process's first one look later for an expired holder.
STAGGER = 0.05

if TYPE_CHECKING:
    Mailbox = queue.SimpleQueue[Wake | None]  # None: ask again


class Watch:
    """What the waiters of one process know together about the lock that they wait for.

    until    second of our clock at which the holder's lease ends, as far as anybody here knows
    waiters  their tokens, in order of arrival

    When a holder dies, the first waiter of each process asks as its lease ends, and the others
    find that `until` has moved.
    """

    def __init__(self) -> None:
        self.until = 0.0
        self.waiters: dict[bytes, None] = {}

    def ask_at(self, token: bytes) -> float:
        """The second at which this waiter asks whether the holder's lease has ended."""
        first = next(iter(list(self.waiters)), token)
        return self.until + (0.001 if first == token else STAGGER)


class WakeUps:
    """The waiters of this process on one server, and the thread that wakes them."""

    def __init__(self, address: Address, watchdog: Watchdog) -> None:
        self._address = address
        self._watchdog = watchdog
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Forget everything: also what a forked child inherited."""
        self.channel = b""
        self.listening = False
        vars(self).pop("_changed", None)
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._error: WireError | None = None
        self._mailboxes: dict[bytes, Mailbox] = {}
        self._watches: WeakValueDictionary[bytes, Watch] = WeakValueDictionary()

    def after_fork(self) -> None:
        """In the child: nobody waits, and the parent's subscription must die with the parent."""
        if self._connection is not None:
            self._connection.disconnect()
        self.reset()

    def join(self, key: bytes, token: bytes) -> tuple[Mailbox, Watch]:
        """Register a waiter, before it asks to be queued. leave() undoes it, halfway too."""
        mailbox = self._mailboxes[token] = queue.SimpleQueue()
        watch = self._watches.setdefault(key, Watch())
        watch.waiters[token] = None
        return mailbox, watch

    def leave(self, key: bytes, token: bytes) -> None:
        """A wake-up that still comes for this token is for nobody."""
        self._mailboxes.pop(token, None)
        watch = self._watches.get(key)
        if watch is not None:
            watch.waiters.pop(token, None)

    def resubscribe(self) -> None:
        """The server was demoted, or may have been: all waiters ask again, on a new connection."""
        if self._connection is not None:
            hang_up(self._connection)

    def close(self) -> None:
        """Nobody will wait here any more: end the thread."""
        self._closed = True
        self.resubscribe()

    def listen(self, until: float) -> None:
        """Return when the subscription is confirmed, or at the second `until` of our clock.

        Raises WireError when there can be none.
        """
        if self.listening:
            return
        changed = lazily(self, "_changed", threading.Condition)
        with changed:
            if self._thread is None:
                self._error = None
                thread = threading.Thread(
                    target=self._run, args=(changed,), name="locks.wakeups", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    raise WireError(error, sent=False) from error
                self._thread = thread
            left = min(until - now(), threading.TIMEOUT_MAX)
            changed.wait_for(lambda: self.listening or self._thread is None, max(0.0, left))
            if self._error is not None and not self.listening:
                raise self._error

    def _run(self, changed: threading.Condition) -> None:
        # A new channel each time: it has one subscription, ever, and so at most one server on
        # which it has a receiver.
        self.channel = b"lock:wake:%d-%b" % (os.getpid(), secrets.token_hex(8).encode())
        self._connection = connection = self._address.connection()
        error: Exception = ConnectionError("the subscription ended")
        try:
            open_connection(connection, min(PROBE, self._address.timeout))
            connection.send_command("SUBSCRIBE", self.channel)
            connection.read_response()
            set_timeout(connection, PROBE)
            with changed:
                self.listening = True
                changed.notify_all()
            self._read(connection)
        except Exception as caught:
            error = caught
            level = logging.WARNING if self._mailboxes else logging.INFO
            logger.log(level, "no wake-ups until the next waiter subscribes: %s", caught)
        finally:
            connection.disconnect()
            with changed:
                self.listening = False
                self._thread = None
                self._connection = None
                self._error = WireError(error, sent=True)
                changed.notify_all()
            for mailbox in list(self._mailboxes.values()):
                mailbox.put(None)

    def _read(self, connection: Any) -> None:
        probing = False
        while not self._closed:
            try:
                message = connection.read_response(disconnect_on_error=False)
            except Exception as error:
                if probing or not is_a(error, "TimeoutError") or has_moved(connection):
                    raise
                connection.send_command("PING")
                probing = True
                continue
            probing = False
            if message[0] == b"message":
                self._deliver(message[2])

    def _deliver(self, message: bytes) -> None:
        try:
            token, wake = Wake.parse(message)
        except ValueError:
            logger.warning("not a wake-up: %r", message)
            return
        mailbox = self._mailboxes.get(token)
        if mailbox is not None:
            mailbox.put(wake)
        else:  # if it gave up; not a token that got the lock by asking, and holds it
            self._watchdog.release_abandoned(token)
