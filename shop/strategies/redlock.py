"""FLAW: a holder slower than the ttl loses the lock; a restarted server votes a second time.

Redlock (articles A1, section 3.4, and A4 of docs/sources.md) takes the lock of `token` on N
independent servers; each server that grants it has given its vote. A buyer with the votes of a
majority has the lock. The lock is valid for the ttl, minus the time that the vote took, minus a
margin for clock drift.

    time 0.0   servers 4 and 5 are cut off; A takes the lock with the votes of 1, 2 and 3
    time 0.2   server 3 restarts, without its data
    time 0.3   4 and 5 are back; B takes the lock with the votes of 3, 4 and 5
    time 0.4   A and B both have the lock

The load test's faults `slow` and `pause` show the first flaw, `restart` the second. Redlock's
author asks operators to keep a restarted server out of service for one ttl; a client cannot enforce
that. Kleppmann's "How to do distributed locking", which article A4 links, discusses further flaws.
"""

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import redis
from django.conf import settings
from django.db import transaction

from locks import Lock, LockBackendError
from locks.clock import now
from locks.sans_io.protocol import compute_drift, to_milliseconds
from shop.errors import Unavailable
from shop.lua import lua_script
from shop.sale.locked import hold_lock
from shop.sale.points import point_reached
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.polling_lock import AbstractPollingLock

#: Upper bound of the random pause between two tries, as in redlock-py and similar packages.
MAX_PAUSE_SECONDS = 0.2


class RedlockLock(AbstractPollingLock):
    """A lock that is a key on N servers. The buyer who set the key on a majority holds the lock.

    clients  one redis.Redis per server, without retries. Its socket and connect timeouts must be
             well below the ttl, because a try waits that long for an unreachable server

    acquire() raises LockBackendError if fewer servers than a majority answered.
    """

    def __init__(self, clients: Sequence[redis.Redis], name: str, *, ttl: float) -> None:
        super().__init__(name, ttl=ttl)
        self.clients = list(clients)
        self.key = f"lock:{name}"
        #: Seconds to wait for the replies of all servers: a small part of the ttl.
        self.reply_timeout = max(0.05, ttl / 10)
        self.quorum = len(self.clients) // 2 + 1

    def get_trusted_seconds(self) -> float:
        """Return the ttl minus the drift of the servers' clocks during the ttl."""
        return self.ttl - compute_drift(self.ttl)

    def try_lock(self, token: str) -> bool:
        """Set the key on all servers. Return whether a majority set it before the ttl ends."""
        sent_at = now()
        ttl_ms = to_milliseconds(self.ttl)
        replies = self._send_to_servers(self.clients, "SET", self.key, token, "NX", "PX", ttl_ms)
        point_reached.send("redlock:before_validity")  # a test can stop the thread here
        votes = [reply is not None and not _is_error(reply) for reply in replies]
        validity_seconds = self.get_trusted_seconds() - (now() - sent_at)
        if sum(votes) >= self.quorum and validity_seconds > 0:
            return True
        # Delete the key wherever it may be set, so that another buyer can get a majority. A server
        # that replied None has another buyer's key.
        clients_and_replies = zip(self.clients, replies, strict=True)
        self._delete([client for client, reply in clients_and_replies if reply is not None], token)
        answer_count = sum(not _is_error(reply) for reply in replies)
        if answer_count < self.quorum:
            failure = next(filter(_is_error, replies))
            raise LockBackendError(
                f"{answer_count} of {len(self.clients)} servers answered, a majority of "
                f"{self.quorum} is needed; start the others. The first error: {failure}",
                name=self.name,
            )
        return False

    def unlock(self, token: str) -> bool:
        """Delete the key on all servers. Return whether a majority of them still had it."""
        replies = self._delete(self.clients, token)
        deleted_count = replies.count(1)
        if deleted_count >= self.quorum:
            return True
        failed_count = sum(map(_is_error, replies))
        # A server that failed may have deleted the key, too. So a majority may have had the key.
        if deleted_count + failed_count >= self.quorum:
            # _release() catches this error and returns Release.UNKNOWN.
            raise redis.ConnectionError("too few servers replied to know whether the lock was held")
        return False

    def choose_pause_seconds(self) -> float:
        """Return a random pause, so that contenders do not split the servers' votes again."""
        return random.uniform(0, MAX_PAUSE_SECONDS)

    def _delete(self, clients: Sequence[redis.Redis], token: str) -> list[Any]:
        """Delete the lock on the servers where it has this token. Return each reply or error."""
        return self._send_to_servers(
            clients, "EVAL", lua_script("compare_and_delete").text, 1, self.key, token
        )

    def _send_to_servers(self, clients: Sequence[redis.Redis], *command: str | int) -> list[Any]:
        """Send the command to all these servers, then return the reply or the error of each."""
        deadline = now() + self.reply_timeout
        connections_or_errors = [_send(client, command) for client in clients]
        return [
            _receive(client, connection_or_error, deadline)
            for client, connection_or_error in zip(clients, connections_or_errors, strict=True)
        ]


def _send(client: redis.Redis, command: tuple[str | int, ...]) -> Any:
    """Send a command without waiting for the reply.

    Return the connection on which the reply will arrive, or the error.
    """
    connection: Any = None
    try:
        connection = client.connection_pool.get_connection()
        connection.send_command(*command)
        return connection
    except redis.RedisError as error:
        if connection is not None:
            client.connection_pool.release(connection)
        return error


def _receive(client: redis.Redis, connection_or_error: Any, deadline: float) -> Any:
    """Wait for the reply to a command that _send() has sent. Return the reply or an error.

    connection_or_error  the result of _send()
    deadline             the time until which to wait, on the clock of now()
    """
    if _is_error(connection_or_error):
        return connection_or_error
    connection = connection_or_error
    try:
        # The timeout is at least 1 ms, so that a reply that has arrived is read. After the timeout
        # redis-py closes the connection, so a later command cannot get this reply.
        return connection.read_response(timeout=max(0.001, deadline - now()))
    except redis.RedisError as error:
        return error
    finally:
        client.connection_pool.release(connection)


def _is_error(reply: Any) -> bool:
    return isinstance(reply, redis.RedisError)


@cache
def redlock_clients() -> list[redis.Redis]:
    """Return one client for each server of REDLOCK_URLS, with timeouts well below the ttl."""
    timeout = min(0.5, settings.SHOP_LOCK_TTL / 10)
    short_timeouts = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    pool_options = settings.LOCKS_POOL | short_timeouts
    return [redis.Redis.from_url(url, **pool_options) for url in settings.REDLOCK_URLS]


def make_lock(attempt: Attempt) -> Lock:
    """Return a Redlock on the servers of REDLOCK_URLS. Raises Unavailable if there are none."""
    if not settings.REDLOCK_URLS:
        raise Unavailable("Redlock needs its servers: set REDLOCK_URLS; nothing was sold")
    return RedlockLock(redlock_clients(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


def buy(attempt: Attempt) -> Receipt:
    with hold_lock(make_lock(attempt)) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=140,
    title="Redlock",
    article="A1 A4",
    summary="A majority of five servers: one may fail, but a slow or paused holder loses it.",
    highlights=('"SET", self.key', ">= self.quorum and validity"),
    buy=buy,
    needs="REDLOCK_URLS",
    backend="redlock",
)
