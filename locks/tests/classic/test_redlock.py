"""Redlock on five real servers: what a majority buys, and what it does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...classic.points import Hook
from ...classic.redlock import RedlockLock
from ...errors import LockBackendError, LockTimeout
from ...lease import Release
from ...testing.server import eventually
from .kinds import Backends
from .servers import Valkey, client_of

TTL = 5.0


@pytest.fixture
def servers(five: list[Valkey]) -> Iterator[list[Valkey]]:
    """Five empty ones, which the test may kill."""
    yield five
    for server in five:
        server.resume()
        server.ensure()
        with client_of(server.port) as client:
            client.flushall()


@pytest.fixture
def backends(servers: list[Valkey]) -> Iterator[Backends]:
    backends = Backends(0, [server.port for server in servers])
    yield backends
    backends.close()


@pytest.fixture
def lock(backends: Backends) -> RedlockLock:
    return RedlockLock(backends.clients, "apple", ttl=TTL, retry=0.02, timeout=0.5)


def votes(lock: RedlockLock, *places: int) -> list[object]:
    return [lock.clients[place].get(lock.key) for place in places or range(5)]


def test_all_five_hold_the_token_and_the_release_deletes_it_on_all(lock: RedlockLock) -> None:
    lease = lock.acquire(1)
    assert votes(lock) == [lease.token.encode()] * 5
    assert lease.release() is Release.RELEASED
    assert votes(lock) == [None] * 5


def test_the_lease_is_trusted_for_less_than_the_ttl(lock: RedlockLock) -> None:
    lease = lock.acquire(1)
    assert lease.remaining() <= TTL - (TTL * 0.01 + 0.002)


def test_two_of_five_down_the_lock_works_on(lock: RedlockLock, servers: list[Valkey]) -> None:
    servers[3].kill()
    servers[4].kill()
    with lock.hold(1) as lease:
        assert votes(lock, 0, 1, 2) == [lease.token.encode()] * 3
        assert lock.try_acquire() is None
    assert lease.outcome is Release.RELEASED


def test_three_of_five_down_the_error_says_what_is_missing_and_no_vote_stays(
    lock: RedlockLock, servers: list[Valkey]
) -> None:
    for server in servers[2:]:
        server.kill()
    with pytest.raises(LockBackendError, match="2 of 5 servers answered, a majority of 3"):
        lock.acquire(1)
    assert votes(lock, 0, 1) == [None, None]


def test_two_that_do_not_answer_cost_one_timeout_and_not_two(
    lock: RedlockLock, servers: list[Valkey]
) -> None:
    with lock.hold(1):
        pass  # connected to all
    for server in servers[3:]:
        server.pause()
    started = time.monotonic()
    lease = lock.acquire(1)
    assert 0.5 <= time.monotonic() - started < 0.95
    for server in servers[3:]:
        server.resume()
    assert lease.release() is Release.RELEASED


def test_all_are_asked_before_the_first_has_answered(
    backends: Backends, servers: list[Valkey]
) -> None:
    lock = RedlockLock(backends.clients, "apple", ttl=TTL, timeout=2.0)
    with lock.hold(1):
        pass  # connected to all
    servers[0].pause()
    with ThreadPoolExecutor(1) as pool:
        acquiring = pool.submit(lock.acquire, 1)
        eventually(lambda: all(votes(lock, 1, 2, 3, 4)))
        assert not acquiring.done()
        servers[0].resume()
        assert acquiring.result().release() is Release.RELEASED


def test_the_majority_dies_while_the_lock_is_held_and_the_release_says_unknown(
    lock: RedlockLock, servers: list[Valkey]
) -> None:
    lease = lock.acquire(1)
    for server in servers[2:]:
        server.kill()
    assert lease.release() is Release.UNKNOWN


def test_a_minority_of_votes_is_given_back_at_once(lock: RedlockLock) -> None:
    for client in lock.clients[:3]:
        client.set(lock.key, "another contender")
    with pytest.raises(LockTimeout):
        lock.acquire(0)
    assert votes(lock) == [b"another contender"] * 3 + [None] * 2


def test_a_majority_that_took_longer_than_the_ttl_is_no_lock(
    backends: Backends, hook: Callable[[Hook], None]
) -> None:
    lock = RedlockLock(backends.clients, "apple", ttl=0.3, retry=0.02, timeout=1.0)
    slow: list[object] = []

    def let_the_votes_run_out(name: str) -> None:
        if not slow:
            slow.append(lock.clients[0].get(lock.key))
            eventually(lambda: votes(lock) == [None] * 5)

    hook(let_the_votes_run_out)
    assert lock.try_acquire() is None
    assert slow != [None]  # it had the votes
    assert lock.try_acquire() is not None


@pytest.mark.parametrize(("forgets", "both_in"), [(True, True), (False, False)])
def test_a_server_that_restarts_empty_votes_twice(
    forgets: bool, both_in: bool, lock: RedlockLock, servers: list[Valkey]
) -> None:
    """Servers 4 and 5 are away while A takes 1, 2 and 3; then 3 forgets, and 4 and 5 are back."""
    for server in servers[3:]:
        server.kill()
    lock.acquire(1).check()
    if forgets:
        servers[2].kill()
        servers[2].start()
    for server in servers[3:]:
        server.start()
    assert (lock.try_acquire() is not None) is both_in


def test_one_server_that_restarts_empty_while_all_five_hold_changes_nothing(
    lock: RedlockLock, servers: list[Valkey]
) -> None:
    lock.acquire(1).check()
    servers[2].kill()
    servers[2].start()
    assert lock.try_acquire() is None
