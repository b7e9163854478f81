"""Tests of locks.compat.Lock whose token is passed between threads, processes and clients.

Also tests with lost requests and replies.
"""

from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError

from .. import RedisLock, compat
from ..sans_io.protocol import Call
from ..testing.server import LoopbackProxy, Server, eventually
from .waiting import ANY_COMMAND, run_in_thread, wait_until_queued

MakeLock = Callable[..., compat.Lock]


def test_waiters_with_one_token_exclude_each_other(
    client: redis.Redis, make_compat_lock: MakeLock
) -> None:
    """Two waiters use the same token, and get the lock one after the other.

    For example, a task queue delivers a task twice, and the task uses its id as the token.
    """
    with make_compat_lock():
        attempts = [
            run_in_thread(lambda: make_compat_lock().acquire(token="task-1")) for _ in range(2)
        ]
        # Both kinds of lock use the same queue if they have the same key.
        wait_until_queued(RedisLock(client, "job", key="job", ttl=1), 2)
    eventually(lambda: any(attempt.done() for attempt in attempts))
    assert sum(attempt.done() for attempt in attempts) == 1
    # Release the lock of the first waiter, and then that of the second one.
    owner = make_compat_lock()
    owner.local.token = "task-1"
    owner.release()
    assert [attempt.result(5) for attempt in attempts] == [True, True]
    owner.local.token = "task-1"
    owner.release()


def test_token_is_thread_local_by_default(make_compat_lock: MakeLock) -> None:
    """Another thread can release a lock only if it was made with thread_local=False."""
    lock, shared_lock = make_compat_lock(), make_compat_lock(thread_local=False)
    assert lock.acquire()
    with pytest.raises(LockError, match="acquire the lock first"):
        run_in_thread(lock.release).result(5)
    lock.release()
    assert shared_lock.acquire()
    run_in_thread(shared_lock.release).result(5)
    assert not shared_lock.locked()


def test_waiting_thread_keeps_its_token_when_another_releases(
    make_compat_lock: MakeLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads share a lock object with thread_local=False, so they share its token.

    A waiting thread gets the lock, and stores its token, before release() in the other thread
    returns. release() must not clear the token of the waiting thread.
    """
    lock = make_compat_lock(thread_local=False)
    assert lock.acquire()
    waiter = run_in_thread(lock.acquire)
    wait_until_queued(lock._lock, 1)
    call = lock._lock._call

    def call_until_acquired(command: Call) -> Any:
        reply = call(command)
        assert waiter.result(5)
        return reply

    monkeypatch.setattr(lock._lock, "_call", call_until_acquired)
    lock.release()
    monkeypatch.undo()
    assert lock.owned()
    lock.release()
    assert not lock.locked()


def test_another_client_releases_with_the_token(server: Server, make_compat_lock: MakeLock) -> None:
    """A process passes the token to another, for example a web request to a Celery task."""
    lock = make_compat_lock(timeout=10)
    other_lock: compat.Lock = server.make_client().lock("job", timeout=10, lock_class=compat.Lock)
    assert lock.acquire()
    other_lock.local.token = lock.local.token.decode()
    assert other_lock.owned()
    assert other_lock.extend(10)
    other_lock.release()
    assert not other_lock.locked()
    assert not lock.owned()
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_unanswered_release_raises_and_keeps_the_token(
    server: Server, client: redis.Redis, proxy: LoopbackProxy
) -> None:
    """A release whose request is lost raises redis-py's exception, and can be called again."""
    proxied_client = server.make_client(port=proxy.port, socket_timeout=1)
    lock: compat.Lock = proxied_client.lock("job", timeout=10, lock_class=compat.Lock)
    assert lock.acquire()
    proxy.lose_request(ANY_COMMAND)
    with pytest.raises(redis.ConnectionError):
        lock.release()
    assert client.exists("job")
    lock.release()
    assert not client.exists("job")


def test_token_with_a_lost_reply_is_not_released_again(
    server: Server, client: redis.Redis, proxy: LoopbackProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """acquire(token="mine") acquires the lock, then replaces its token. The second reply is lost.

    The lock is not released with the token: a retry of the same task may already hold it.
    """
    options: Any = {"timeout": 30, "lock_class": compat.Lock}
    proxied_client = server.make_client(port=proxy.port, socket_timeout=1)
    proxied_lock: compat.Lock = proxied_client.lock("job", **options)
    adopt = RedisLock.adopt

    def adopt_without_reply(*args: Any, **options: Any) -> Any:
        proxy.lose_reply(b"EVALSHA")
        return adopt(*args, **options)

    monkeypatch.setattr(RedisLock, "adopt", adopt_without_reply)
    with pytest.raises(redis.ConnectionError):
        proxied_lock.acquire(token="mine")
    # Only the token that acquire() generated at first is released in the background.
    eventually(lambda: not proxied_lock._lock._watchdog.abandoned)
    assert client.get("job") == b"mine"
    retried_lock: compat.Lock = client.lock("job", **options)
    retried_lock.local.token = b"mine"
    retried_lock.release()


def test_compat_client_makes_compat_locks(server: Server) -> None:
    """client.lock() makes a compat.Lock, unless the caller gives another class."""
    with compat.Redis(port=server.port) as client:
        assert type(client.lock("job")) is compat.Lock
        # The arguments may be positional, in redis-py's order.
        assert type(client.lock("job", 10, 0.2, False, 1, redis.lock.Lock)) is redis.lock.Lock
        with client.lock("job", 10, 0.2, False) as lock:
            assert (lock.timeout, lock.sleep, lock.blocking) == (10, 0.2, False)


def test_locks_with_the_same_token_are_renewed_separately(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three locks have the same token. The release of one does not end the renewal of another."""
    monkeypatch.setattr(compat.Lock, "ttl", 0.6)
    locks = [
        compat.Lock(client, "A"),
        compat.Lock(client, "B"),
        compat.Lock(client, "C", timeout=5),
    ]
    for lock in locks:
        assert lock.acquire(token="job-17")
    leases: list[Any] = [lock.lease for lock in locks]
    assert not leases[0].lost_event.wait(1.0)  # longer than the ttl
    assert not leases[1].lost_event.is_set()
    for lock in locks[1:]:
        lock.release()
    assert not leases[0].lost_event.wait(1.0)
    assert client.get("A") == b"job-17"
    locks[0].release()
    assert not locks[0]._lock._watchdog.renewals
