"""Redlock on five real servers: the guarantees of a majority, and their limits."""

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
    SERVER_IS_DOWN,
    assert_retry_later,
    buy,
    committed,
    count_orders_and_stock,
    eventually,
    open_sale,
)


def lock_on(servers: list[Valkey], *, ttl: float, timeout: float) -> RedlockLock:
    """Return a lock with clients that wait for 2 s, on servers without a key."""
    clients = [
        redis.Redis(port=server.port, socket_timeout=2, retry=Retry(NoBackoff(), 0))
        for server in servers
    ]
    for client in clients:
        client.flushall()
    lock = RedlockLock(clients, APPLE, ttl=ttl)
    lock.timeout = timeout
    return lock


def votes(lock: RedlockLock, *places: int) -> list[object]:
    return [lock.clients[place].get(lock.key) for place in places or range(5)]


@committed
@pytest.mark.parametrize("down", [2, 3])
def test_redlock_needs_three_of_five_servers(
    down: int, redlock_urls: None, five_valkeys: list[Valkey]
) -> None:
    open_sale(1)
    outages = [Outage(server) for server in five_valkeys[:down]]
    try:
        for outage in outages:
            outage.begin()
        answer = buy(lock="redlock")
    finally:
        for outage in outages:
            outage.end()
    if down == 2:
        assert (answer.status, count_orders_and_stock()) == (201, (1, 0))
    else:
        assert_retry_later(answer, "unavailable", SERVER_IS_DOWN)
        assert count_orders_and_stock() == (0, 1)
        assert sum(client.dbsize() for client in redlock.clients()) == 0, "no vote is left"


def test_all_servers_are_asked_before_the_first_answer(five_valkeys: list[Valkey]) -> None:
    lock = lock_on(five_valkeys, ttl=5.0, timeout=2.0)
    with lock.hold(1):
        pass  # connected to all
    os.kill(five_valkeys[0].pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        acquiring = pool.submit(lock.acquire, 1)
        eventually(lambda: all(votes(lock, 1, 2, 3, 4)), what="all have voted")
        assert not acquiring.done()
        os.kill(five_valkeys[0].pid, signal.SIGCONT)
        assert acquiring.result().release() is Release.RELEASED


def test_majority_later_than_the_ttl_is_no_lock(five_valkeys: list[Valkey]) -> None:
    lock = lock_on(five_valkeys, ttl=0.3, timeout=1.0)
    slow: list[object] = []

    def let_the_votes_run_out(name: str, facts: Mapping[str, object]) -> None:
        if not slow:
            slow.append(lock.clients[0].get(lock.key))
            eventually(lambda: votes(lock) == [None] * 5, what="the votes run out")

    with points.installed(let_the_votes_run_out):
        assert lock.try_acquire() is None
    assert slow != [None]  # it had the votes
    assert lock.try_acquire() is not None
