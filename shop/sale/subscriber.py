"""The channel on which all waiters of a lock in this process are notified of its release (A3)."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from locks.connection import has_moved

logger = logging.getLogger(__name__)

#: Seconds between two attempts to connect while somebody waits.
RECONNECT = 0.1
#: Seconds without a message after which the listener looks whether anybody still waits, and whether
#: the master has moved.
LOOK_UP = 0.5

_mutex = threading.Lock()


class Channel:
    """One subscription for all who wait for one lock in this process, heard by one thread.

    A message may be missed while the connection is down; a waiter must bound its wait and then
    ask the server itself.
    """

    def __init__(self, client: redis.Redis, name: str) -> None:
        self.name = name
        self.waiters = 0
        self.subscribed = threading.Event()  # also set when it cannot be, so that they ask and see
        self._messages = threading.Semaphore(0)
        self._client = client
        threading.Thread(target=self._listen, name="lock-channel", daemon=True).start()

    def wait(self, timeout: float | None) -> bool:
        """Until a message comes; False when none did. One that came before counts."""
        return self._messages.acquire(timeout=timeout)

    def _listen(self) -> None:
        while self._is_wanted():
            try:
                with self._client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
                    pubsub.subscribe(self.name)
                    while self._is_wanted():
                        self._hear(pubsub)
            except Exception as error:  # whatever it was, this connection is of no more use
                logger.warning("the connection on which waiters listen is lost: %s", error)
                self.subscribed.set()
                self._messages.release(max(1, self.waiters))  # theirs may be lost
                time.sleep(RECONNECT)

    def _hear(self, pubsub: Any) -> None:
        message = pubsub.get_message(timeout=LOOK_UP)
        if message is None:
            if has_moved(pubsub.connection):
                raise redis.ConnectionError("it leads to a master that was replaced")
        elif message["type"] == "subscribe":
            self.subscribed.set()
        elif message["type"] == "message":
            self._messages.release()  # for one waiter: only one of them can have the lock

    def _is_wanted(self) -> bool:
        with _mutex:
            key = (self._client.connection_pool, self.name)
            if not self.waiters and _channels.get(key) is self:
                del _channels[key]
            return self.waiters > 0


_channels: dict[tuple[Any, str], Channel] = {}  # by connection pool and name


@contextmanager
def listen(client: redis.Redis, name: str) -> Iterator[Channel]:
    """The channel, asked for but maybe not yet `subscribed`, for as long as the block."""
    with _mutex:
        key = (client.connection_pool, name)
        channel = _channels.get(key) or _channels.setdefault(key, Channel(client, name))
        channel.waiters += 1
    try:
        yield channel
    finally:
        with _mutex:
            channel.waiters -= 1
