"""A Redis channel that tells the waiters for a lock in this process that the lock was released.

Article A3 (docs/sources.md) describes such a channel for Redisson's lock.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from locks.connection import has_master_moved

logger = logging.getLogger(__name__)

RECONNECT_PAUSE_SECONDS = 0.1
#: After this time without a message the listener checks whether a buyer still waits, and whether
#: the master has moved.
CHECK_INTERVAL_SECONDS = 0.5

_mutex = threading.Lock()  # guards _channels, and `waiter_count` of each channel


class Channel:
    """A subscription, read by one thread, for all waiters for one lock in this process.

    A message may be missed while the connection is down. So a waiter must limit its wait, and then
    try to acquire the lock.
    """

    def __init__(self, client: redis.Redis, name: str) -> None:
        self.name = name
        self.waiter_count = 0
        #: Set once the first SUBSCRIBE has succeeded or failed. In both cases the waiters then try
        #: to acquire the lock.
        self.subscribe_attempted = threading.Event()
        self._messages = threading.Semaphore(0)
        self._client = client
        threading.Thread(target=self._listen, name="lock-channel", daemon=True).start()

    def wait(self, timeout: float | None) -> bool:
        """Wait for a message, or for an error of the connection. Return False after the timeout.

        If a message has arrived before, and did not wake another waiter, return at once.
        """
        return self._messages.acquire(timeout=timeout)

    def _listen(self) -> None:
        """Read messages until no waiter is left. After an error, connect again."""
        while not self._close_if_unused():
            try:
                with self._client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
                    pubsub.subscribe(self.name)
                    while not self._close_if_unused():
                        self._read_message(pubsub)
            except Exception as error:  # after any error the connection is replaced
                logger.warning("lost the connection that waits for lock releases: %s", error)
                # Wake all waiters, because messages may be lost. release(0) would be an error.
                self.subscribe_attempted.set()
                self._messages.release(max(1, self.waiter_count))
                time.sleep(RECONNECT_PAUSE_SECONDS)

    def _read_message(self, pubsub: Any) -> None:
        """Wait up to CHECK_INTERVAL_SECONDS for a message. A release of the lock wakes one waiter.

        Raises redis.ConnectionError if no message came and the master has been replaced.
        """
        message = pubsub.get_message(timeout=CHECK_INTERVAL_SECONDS)
        if message is None:
            if has_master_moved(pubsub.connection):
                raise redis.ConnectionError("the connection is to a master that has been replaced")
        elif message["type"] == "subscribe":
            self.subscribe_attempted.set()
        elif message["type"] == "message":
            self._messages.release()  # for one waiter: only one of them can have the lock

    def _close_if_unused(self) -> bool:
        """Remove this channel from `_channels` if no waiter is left. Return whether none is left.

        The next waiter then gets a new channel.
        """
        with _mutex:
            if self.waiter_count:
                return False
            key = (self._client.connection_pool, self.name)
            if _channels.get(key) is self:
                del _channels[key]
            return True


_channels: dict[tuple[Any, str], Channel] = {}  # by connection pool and name


@contextmanager
def open_channel(client: redis.Redis, name: str) -> Iterator[Channel]:
    """Provide this process's channel of this name, and keep the channel open until the block ends.

    Until `subscribe_attempted` of the channel is set, messages may be missed.
    """
    # Under the mutex, the channel's thread cannot end between the look-up and the count.
    with _mutex:
        key = (client.connection_pool, name)
        if key not in _channels:
            _channels[key] = Channel(client, name)
        channel = _channels[key]
        channel.waiter_count += 1
    try:
        yield channel
    finally:
        with _mutex:
            channel.waiter_count -= 1
