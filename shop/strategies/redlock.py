"""FLAW: a holder slower than the ttl loses the lock and is not told; a server that restarts empty
gives its vote a second time.

Redlock (articles A1 3.4, A4): `token` on N independent servers. The one with the votes of a
majority has the lock, for the ttl less the time that voting took and a margin for clocks that run
unevenly.

    time 0.0   servers 4 and 5 are cut off; A takes the lock with the votes of 1, 2 and 3
    time 0.2   server 3 restarts, without its data
    time 0.3   4 and 5 are back; B takes the lock with the votes of 3, 4 and 5
    time 0.4   both are in

The faults `slow` and `pause` show the first flaw, `restart` the second. Redlock's author asks to
keep a server that restarts away for one ttl; nothing here can make a server do that. For the rest
of the argument see Kleppmann's "How to do distributed locking", which article A4 links.
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
from locks.sans_io.protocol import drift, milliseconds
from shop.errors import Unavailable
from shop.lua import lua
from shop.sale.locked import held
from shop.sale.points import point
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy
from shop.strategies.shared.polling_lock import Polling

#: The default of redlock-py and similar packages.
MAX_PAUSE_SECONDS = 0.2


class RedlockLock(Polling):
    """SET NX PX on N servers, compare-and-delete on all; the one with a majority holds the lock.

    clients  one redis.Redis per server that do not retry by themselves; their socket and connect
             timeouts, well below the ttl, bound what a server that is cut off costs
    timeout  seconds in which all must have answered

    Raises LockBackendError when so few answer that no majority is possible.
    """

    def __init__(self, clients: Sequence[redis.Redis], name: str, *, ttl: float) -> None:
        super().__init__(name, ttl=ttl)
        self.clients = list(clients)
        self.key = f"lock:{name}"
        self.timeout = max(0.05, ttl / 10)
        self.quorum = len(self.clients) // 2 + 1

    def trusted(self) -> float:
        """Return the ttl less the drift of the servers' clocks in that time."""
        return self.ttl - drift(self.ttl)

    def try_lock(self, token: str) -> bool:
        sent_at = now()
        ttl = milliseconds(self.ttl)
        replies = self._ask(self.clients, "SET", self.key, token, "NX", "PX", ttl)
        point.send("redlock:before_validity")
        voted = [reply is not None and not _failed(reply) for reply in replies]
        validity = self.trusted() - (now() - sent_at)
        if sum(voted) >= self.quorum and validity > 0:
            return True
        # Release every vote that we have or may have, because other buyers need a majority too.
        asked_of = zip(self.clients, replies, strict=True)
        self._delete([client for client, reply in asked_of if reply is not None], token)
        answer_count = sum(not _failed(reply) for reply in replies)
        if answer_count < self.quorum:
            failure = next(filter(_failed, replies))
            raise LockBackendError(
                f"{answer_count} of {len(self.clients)} servers answered, a majority of "
                f"{self.quorum} is needed; start the others. One said: {failure}",
                name=self.name,
            )
        return False

    def unlock(self, token: str) -> bool:
        replies = self._delete(self.clients, token)
        deleted, failed = replies.count(1), sum(map(_failed, replies))
        if deleted < self.quorum <= deleted + failed:
            raise redis.ConnectionError("too few servers answered")  # reported as Release.UNKNOWN
        return deleted >= self.quorum

    def pause(self) -> float:
        """Return a random pause, so that contenders that split the vote do not meet again."""
        return random.uniform(0, MAX_PAUSE_SECONDS)

    def _delete(self, clients: Sequence[redis.Redis], token: str) -> list[Any]:
        return self._ask(clients, "EVAL", lua("compare_and_delete").text, 1, self.key, token)

    def _ask(self, clients: Sequence[redis.Redis], *command: str | int) -> list[Any]:
        """Return the reply or the error of each server. All are asked before a reply is read."""
        deadline = now() + self.timeout
        sent = [_send(client, command) for client in clients]
        return [
            _receive(client, sending, deadline)
            for client, sending in zip(clients, sent, strict=True)
        ]


def _send(client: redis.Redis, command: tuple[str | int, ...]) -> Any:
    """Send the command. Return the connection on which the reply will come, or the error."""
    connection: Any = None
    try:
        connection = client.connection_pool.get_connection()
        connection.send_command(*command)
        return connection
    except redis.RedisError as error:
        if connection is not None:
            client.connection_pool.release(connection)
        return error


def _receive(client: redis.Redis, sent: Any, deadline: float) -> Any:
    """Return the reply, or the error. `sent` is the result of `_send`."""
    if _failed(sent):
        return sent
    try:
        # On a timeout it closes the connection, so that no late reply is taken for another's.
        return sent.read_response(timeout=max(0.001, deadline - now()))
    except redis.RedisError as error:
        return error
    finally:
        client.connection_pool.release(sent)


def _failed(reply: Any) -> bool:
    return isinstance(reply, redis.RedisError)


@cache
def clients() -> list[redis.Redis]:
    """Return one client per server. A server that is cut off costs a small part of the ttl."""
    timeout = min(0.5, settings.SHOP_LOCK_TTL / 10)
    short = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    pool_options = settings.LOCKS_POOL | short
    return [redis.Redis.from_url(url, **pool_options) for url in settings.REDLOCK_URLS]


def make_lock(attempt: Attempt) -> Lock:
    """Return a Redlock on the servers of REDLOCK_URLS. Raises Unavailable if there are none."""
    if not settings.REDLOCK_URLS:
        raise Unavailable("Redlock needs its servers: set REDLOCK_URLS; nothing was sold")
    return RedlockLock(clients(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


def buy(attempt: Attempt) -> Receipt:
    with held(make_lock(attempt)) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease_facts(lease)


STRATEGY = Strategy(
    rank=140,
    title="Redlock",
    article="A1 A4",
    summary="A majority of five servers: one may fail, but a slow or paused holder still loses it.",
    marks=('"SET", self.key', ">= self.quorum and validity"),
    buy=buy,
    needs="REDLOCK_URLS",
    backend="redlock",
)
