"""How a process learns that one of its waiters was handed a lock.

One connection and one thread per process and server, started by the first waiter, listen on one
channel of this process. The release script publishes `token fence clock` there; the thread puts it
into the mailbox of the waiter with that token. No connection per waiter, and a process that died
has no subscription, which the release script sees at once.

A wake-up is only a hint, ownership is in the data: a waiter that gets none asks again when the
holder's lease ends, and all of them do when the subscription broke.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import redis

from .protocol import COUNT_RECEIVERS, FENCE_MEMORY_MS, Wake
from .scripts import script
from .wire import Server, has_moved

logger = logging.getLogger(__name__)

#: Seconds without a message after which the connection is probed, and again until it is given up.
PROBE = 5.0
#: Seconds by which the waiters behind a process's first one look later for an expired holder.
STAGGER = 0.05

if TYPE_CHECKING:
    Mailbox = queue.SimpleQueue[Wake | None]  # None: ask again


class Watch:
    """What the waiters of one process know together about the lock that they wait for.

    until    monotonic second at which the holder's lease ends, as far as anybody here was told
    waiters  their tokens, in order of arrival

    When a holder dies, the first waiter of each process asks as its lease ends, and the others
    find that `until` has moved.
    """

    def __init__(self) -> None:
        self.until = 0.0
        self.waiters: dict[bytes, None] = {}

    def ask_at(self, token: bytes) -> float:
        """Monotonic second at which this waiter asks whether the holder's lease has ended."""
        first = next(iter(list(self.waiters)), token)
        return self.until + (0.001 if first == token else STAGGER)


class WakeUps:
    """The waiters of this process on one server, and the thread that wakes them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.reset()

    def reset(self) -> None:
        """Forget everything: also what a forked child inherited."""
        self.channel = b""
        self.listening = False
        vars(self).pop("_changed", None)
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._error: redis.RedisError | None = None
        self._mailboxes: dict[bytes, Mailbox] = {}
        self._watches: WeakValueDictionary[bytes, Watch] = WeakValueDictionary()
        self._abandoned: dict[bytes, Sequence[bytes]] = {}

    def after_fork(self) -> None:
        """In the child: nobody waits, and the parent's subscription must die with the parent."""
        if self._connection is not None:
            self._connection.disconnect()
        self.reset()

    def join(self, key: bytes, token: bytes) -> tuple[Mailbox, Watch]:
        """Register a waiter, before it asks to be queued."""
        mailbox = self._mailboxes[token] = queue.SimpleQueue()
        watch = self._watches.setdefault(key, Watch())
        watch.waiters[token] = None
        return mailbox, watch

    def leave(self, token: bytes, watch: Watch) -> None:
        """A wake-up that still comes for this token is for nobody."""
        self._mailboxes.pop(token, None)
        watch.waiters.pop(token, None)

    def abandon(self, token: bytes, keys: Sequence[bytes]) -> None:
        """This waiter is gone, perhaps without the server knowing: give back what it is handed."""
        self._abandoned[token] = keys

    def settled(self, token: bytes) -> None:
        """The server knows that this waiter is gone."""
        self._abandoned.pop(token, None)

    def listen(self, until: float) -> None:
        """Return when the subscription is confirmed, or at the monotonic second `until`.

        Raises redis.RedisError when it cannot be had.
        """
        if self.listening:
            return
        changed: threading.Condition = vars(self).setdefault("_changed", threading.Condition())
        with changed:
            if self._thread is None:
                self._error = None
                thread = threading.Thread(
                    target=self._run, args=(changed,), name="locks.wakeups", daemon=True
                )
                thread.start()
                self._thread = thread
            left = min(until - time.monotonic(), threading.TIMEOUT_MAX)
            changed.wait_for(lambda: self.listening or self._thread is None, max(0.0, left))
            if self._error is not None and not self.listening:
                raise self._error

    def _run(self, changed: threading.Condition) -> None:
        # A new channel each time: what was queued for the old one counts as dead, and asks again.
        self.channel = b"lock:wake:%d-%b" % (os.getpid(), secrets.token_hex(8).encode())
        self._abandoned.clear()
        self._connection = connection = self._server.connection(PROBE)
        error: redis.RedisError = redis.ConnectionError("the subscription ended")
        try:
            connection.connect()
            connection.send_command("SUBSCRIBE", self.channel)
            connection.read_response()
            with changed:
                self.listening = True
                changed.notify_all()
            self._read(connection)
        except redis.RedisError as caught:
            error = caught
            level = logging.WARNING if self._mailboxes else logging.INFO
            logger.log(level, "no wake-ups until the next waiter subscribes: %s", caught)
        finally:
            connection.disconnect()
            with changed:
                self.listening = False
                self._thread = None
                self._connection = None
                self._error = error
                changed.notify_all()
            for mailbox in list(self._mailboxes.values()):
                mailbox.put(None)

    def _read(self, connection: Any) -> None:
        probing = False
        while True:
            try:
                message = connection.read_response(disconnect_on_error=False)
            except redis.TimeoutError:
                if probing or has_moved(connection):
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
        mailbox, abandoned = self._mailboxes.get(token), self._abandoned.get(token)
        if mailbox is not None:
            mailbox.put(wake)
        elif abandoned is not None:  # not a token that got the lock by asking, and holds it
            self._give_back(token, abandoned)

    def _give_back(self, token: bytes, keys: Sequence[bytes]) -> None:
        try:
            self._server.call(script("release"), keys, (token, FENCE_MEMORY_MS, COUNT_RECEIVERS))
        except redis.RedisError as error:
            logger.warning("a waiter that gave up was handed the lock: %s", error)
        else:
            self.settled(token)


_wakeups: dict[Server, WakeUps] = {}


def wakeups_of(server: Server) -> WakeUps:
    """The one WakeUps of this process for this server."""
    found = _wakeups.get(server)
    return found if found is not None else _wakeups.setdefault(server, WakeUps(server))


def _after_fork() -> None:
    for wakeups in _wakeups.values():
        wakeups.after_fork()


os.register_at_fork(after_in_child=_after_fork)
