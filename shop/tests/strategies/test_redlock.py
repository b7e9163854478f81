"""The strategy `redlock` on five real Redis servers.

A buyer has the lock if three of the five servers have stored its key (their votes) before the ttl
of the keys ends.
"""

import os
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from locks import Release
from servers.embedded import Valkey
from shop.sale import points
from shop.strategies import redlock
from shop.strategies.redlock import RedlockLock
from shop.tests.outage import Outage
from shop.tests.purchases import (
    APPLE,
    LOCK_SERVER_ERROR,
    assert_retry_later,
    buy,
    committed,
    count_orders_and_stock,
    eventually,
    open_sale,
)


def make_lock(servers: list[Valkey], *, ttl: float, timeout: float) -> RedlockLock:
    """Empty these servers, and return a lock on them.

    timeout  seconds that the lock waits for the replies of all servers
    """
    clients = [
        redis.Redis(port=server.port, socket_timeout=2, retry=Retry(NoBackoff(), 0))
        for server in servers
    ]
    for client in clients:
        client.flushall()
    lock = RedlockLock(clients, APPLE, ttl=ttl)
    lock.reply_timeout = timeout
    return lock


def read_votes(lock: RedlockLock, *server_numbers: int) -> list[object]:
    """Return the votes of these servers: the value of the lock's key on each of them, or None.

    server_numbers  by default all five servers
    """
    return [lock.clients[number].get(lock.key) for number in server_numbers or range(5)]


@committed
@pytest.mark.parametrize("stopped_count", [2, 3])
def test_redlock_needs_three_of_five_servers(
    stopped_count: int, redlock_urls: None, five_valkeys: list[Valkey]
) -> None:
    """With two servers stopped the shop sells a unit. With three it refuses the buyer.

    The two servers that still run have stored the key of the buyer's lock (their votes). After the
    refusal the keys are deleted.
    """
    open_sale(1)
    outages = [Outage(server) for server in five_valkeys[:stopped_count]]
    try:
        for outage in outages:
            outage.begin()
        reply = buy(lock="redlock")
    finally:
        for outage in outages:
            outage.end()
    if stopped_count == 2:
        assert (reply.status, count_orders_and_stock()) == (201, (1, 0))
    else:
        assert_retry_later(reply, "unavailable", LOCK_SERVER_ERROR)
        assert count_orders_and_stock() == (0, 1)
        votes = sum(client.dbsize() for client in redlock.redlock_clients())
        assert votes == 0, "the votes of the refused buyer should be deleted"


def test_requests_are_sent_to_all_servers_at_once(five_valkeys: list[Valkey]) -> None:
    """The first server is stopped and does not answer; the other four store the key meanwhile."""
    lock = make_lock(five_valkeys, ttl=5.0, timeout=2.0)
    with lock.hold(1):
        pass  # from now on the clients are connected to all servers
    os.kill(five_valkeys[0].pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        acquisition = pool.submit(lock.acquire, 1)
        eventually(lambda: all(read_votes(lock, 1, 2, 3, 4)), what="four servers have voted")
        assert not acquisition.done(), "the lock should wait for the first server"
        os.kill(five_valkeys[0].pid, signal.SIGCONT)
        assert acquisition.result().release() is Release.RELEASED


def test_lock_whose_votes_have_expired_is_not_acquired(five_valkeys: list[Valkey]) -> None:
    """The keys on the servers expire before the first try has counted them, so the try fails."""
    lock = make_lock(five_valkeys, ttl=0.3, timeout=1.0)
    votes_before_the_wait: list[object] = []

    def wait_until_the_votes_expire(point: str, fields: Mapping[str, object]) -> None:
        if not votes_before_the_wait:  # only in the first try
            votes_before_the_wait.extend(read_votes(lock))
            eventually(lambda: read_votes(lock) == [None] * 5, what="the votes expire")

    # The lock calls the probe after it has got its votes, and before it counts them.
    with points.use_probe(wait_until_the_votes_expire):
        assert lock.try_acquire() is None
    assert any(votes_before_the_wait), "the first try should have got votes"
    assert lock.try_acquire() is not None


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [
        ([1, 1, 1, 0, 0], Release.RELEASED),
        ([1, 1, redis.TimeoutError(), 0, 0], Release.UNKNOWN),
        ([1, 0, redis.TimeoutError(), 0, 0], Release.EXPIRED),
        ([1, 1, 0, 0, 0], Release.EXPIRED),
    ],
    ids=["majority", "perhaps a majority", "minority and an error", "minority"],
)
def test_release_requires_a_majority_of_deletions(
    replies: list[object],
    outcome: Release,
    five_valkeys: list[Valkey],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease is RELEASED if three servers deleted the key, and else EXPIRED or UNKNOWN.

    A server replies with the number of keys that it deleted. A server that does not reply may
    have deleted the key, too. So the release is UNKNOWN if such servers could complete a majority.

    replies  the replies of the five servers to the DEL
    """
    lock = make_lock(five_valkeys, ttl=5.0, timeout=1.0)
    lease = lock.acquire(0)
    monkeypatch.setattr(lock, "_delete", lambda clients, token: replies)
    assert lease.release() is outcome
