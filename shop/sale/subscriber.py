"""One connection on which all waiters of a process are notified of a release (A3)."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from locks.connection import has_moved

logger = logging.getLogger(__name__)

#: Seconds between two attempts to connect while somebody waits.
RECONNECT = 0.1
#: Seconds without a message after which the listener looks whether the master has moved.
LOOK_UP = 5.0


class Channel:
    """What the waiters of one lock in this process share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiters = 0
        self.subscribed = threading.Event()  # also set when it cannot be, so that they ask and see
        self._messages = threading.Semaphore(0)

    def wake(self, waiters: int = 1) -> None:
        """A message is for one waiter here: only one of them can have the lock."""
        if waiters:
            self._messages.release(waiters)

    def wait(self, timeout: float | None) -> bool:
        """Until a message comes; False when none did. One that came before counts."""
        return self._messages.acquire(timeout=timeout)


class Subscriber:
    """A client id and the channels of this process, on a connection outside the client's pool.

    A message may be missed while the connection is down; whoever waits here must bound the wait
    and then ask the server itself.
    """

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self.id = str(uuid.uuid4())
        self._connect = pool.connection_class
        self._options = pool.connection_kwargs
        self._mutex = threading.Lock()
        self._channels: dict[str, Channel] = {}
        self._unconfirmed: deque[Channel] = deque()  # SUBSCRIBEs are answered in order
        self._connection: Any = None
        self._listening = False

    @classmethod
    def of(cls, client: redis.Redis) -> Subscriber:
        """The one of this process for this client; a forked child gets one of its own."""
        pool = client.connection_pool
        return _subscribers.get(pool) or _subscribers.setdefault(pool, cls(pool))

    @contextmanager
    def listen(self, name: str) -> Iterator[Channel]:
        """The channel, asked for but maybe not yet `subscribed`, for as long as the block."""
        with self._mutex:
            channel = self._channels.get(name)
            if channel is None:
                channel = self._channels[name] = Channel(name)
                self._send("SUBSCRIBE", channel)
            channel.waiters += 1
            if not self._listening:
                self._listening = True
                threading.Thread(target=self._listen, name="lock-channels", daemon=True).start()
        try:
            yield channel
        finally:
            with self._mutex:
                channel.waiters -= 1
                if not channel.waiters:
                    del self._channels[name]
                    self._send("UNSUBSCRIBE", channel)

    def _send(self, command: str, channel: Channel) -> None:
        if self._connection is None:
            return  # the listener subscribes to all channels when it has connected
        if command == "SUBSCRIBE":
            self._unconfirmed.append(channel)
        try:
            self._connection.send_command(command, channel.name, check_health=False)
        except redis.RedisError:
            self._connection = None  # it was closed, which the listener sees; it will reconnect

    def _listen(self) -> None:
        while True:
            connection = self._connect(**self._options)
            try:
                connection.connect()
                with self._mutex:
                    self._connection = connection
                    for channel in self._channels.values():
                        self._send("SUBSCRIBE", channel)
                while True:
                    self._hear(connection)
            except Exception as error:  # whatever it was, this connection is of no more use
                connection.disconnect()
                if not self._lost(error):
                    return
            time.sleep(RECONNECT)

    def _hear(self, connection: Any) -> None:
        try:
            message = connection.read_response(
                timeout=LOOK_UP, push_request=True, disconnect_on_error=False
            )
        except redis.TimeoutError:
            if has_moved(connection):
                raise
        else:
            self._heard(*message[:2])

    def _heard(self, kind: Any, name: Any) -> None:
        kind, name = _text(kind), _text(name)
        with self._mutex:
            if kind == "subscribe":
                self._unconfirmed.popleft().subscribed.set()
            elif kind == "message" and name in self._channels:
                self._channels[name].wake()

    def _lost(self, error: Exception) -> bool:
        """Wake all waiters, since their message may be lost; False when nobody waits."""
        with self._mutex:
            self._connection = None
            self._unconfirmed.clear()
            for channel in self._channels.values():
                channel.subscribed.set()
                channel.wake(channel.waiters)
            self._listening = bool(self._channels)
            if self._listening:
                logger.warning("the connection on which waiters listen is lost: %s", error)
            return self._listening


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


_subscribers: weakref.WeakKeyDictionary[Any, Subscriber] = weakref.WeakKeyDictionary()
os.register_at_fork(after_in_child=_subscribers.clear)
