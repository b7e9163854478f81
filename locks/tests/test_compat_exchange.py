"""locks.compat.Lock between threads, processes and clients, and where answers are lost."""

from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError

from .. import RedisLock, compat
from ..testing.server import LoopbackProxy, Server, eventually
from .waiting import in_thread

Make = Callable[..., compat.Lock]


def test_two_waiters_with_one_token_take_turns(client: redis.Redis, lock_of: Make) -> None:
    """A task that is delivered twice brings its id both times."""
    with lock_of():
        twice = [in_thread(lambda: lock_of().acquire(token="task-1")) for _ in range(2)]
        look = RedisLock(client, "job", key="job", ttl=1)
        eventually(lambda: len(look.inspect().waiters) == 2)
    eventually(lambda: any(attempt.done() for attempt in twice))
    assert sum(attempt.done() for attempt in twice) == 1
    owner = lock_of()
    owner.local.token = "task-1"
    owner.release()
    assert [attempt.result(5) for attempt in twice] == [True, True]
    owner.local.token = "task-1"
    owner.release()


def test_token_is_thread_local_by_default(lock_of: Make) -> None:
    lock, shared = lock_of(), lock_of(thread_local=False)
    assert lock.acquire()
    with pytest.raises(LockError, match="acquire the lock first"):
        in_thread(lock.release).result(5)
    lock.release()
    assert shared.acquire()
    in_thread(shared.release).result(5)
    assert not shared.locked()


def test_waiting_thread_keeps_its_token_when_another_releases(
    lock_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the lock before the reply to the release is read."""
    lock = lock_of(thread_local=False)
    assert lock.acquire()
    waiting = in_thread(lock.acquire)
    eventually(lambda: len(lock._lock.inspect().waiters) == 1)
    ask = lock._run

    def slow(*command: Any) -> Any:
        reply = ask(*command)
        assert waiting.result(5)
        return reply

    monkeypatch.setattr(lock, "_run", slow)
    lock.release()
    monkeypatch.undo()
    assert lock.owned()
    lock.release()
    assert not lock.locked()


def test_another_client_releases_with_the_token(server: Server, lock_of: Make) -> None:
    """A web request may pass the token to a Celery task in this way."""
    lock = lock_of(timeout=10)
    theirs: compat.Lock = server.client().lock("job", timeout=10, lock_class=compat.Lock)
    assert lock.acquire()
    theirs.local.token = lock.local.token.decode()
    assert theirs.owned()
    assert theirs.extend(10)
    theirs.release()
    assert not theirs.locked()
    assert not lock.owned()
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_unanswered_release_raises_and_keeps_the_token(
    server: Server, client: redis.Redis, proxy: LoopbackProxy
) -> None:
    """The exception is redis-py's."""
    far = server.client(port=proxy.port, socket_timeout=1)
    lock: compat.Lock = far.lock("job", timeout=10, lock_class=compat.Lock)
    assert lock.acquire()
    proxy.lose_request(b"\r\n")
    with pytest.raises(redis.ConnectionError):
        lock.release()
    assert client.exists("job")
    lock.release()
    assert not client.exists("job")


def test_token_with_a_lost_reply_is_not_released_again(
    server: Server, client: redis.Redis, proxy: LoopbackProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is retried under its id has the same token. Without a reply it stays a ttl."""
    options: Any = {"timeout": 30, "lock_class": compat.Lock}
    far: compat.Lock = server.client(port=proxy.port, socket_timeout=1).lock("job", **options)
    adopt = RedisLock.adopt

    def cut(*args: Any, **options: Any) -> Any:
        proxy.lose_reply(b"EVALSHA")
        return adopt(*args, **options)

    monkeypatch.setattr(RedisLock, "adopt", cut)
    with pytest.raises(redis.ConnectionError):
        far.acquire(token="mine")
    eventually(lambda: not far._lock._watchdog.abandoned)  # what it was queued with
    assert client.get("job") == b"mine"
    again: compat.Lock = client.lock("job", **options)
    again.local.token = b"mine"
    again.release()


def test_compat_client_makes_compat_locks(server: Server) -> None:
    with compat.Redis(port=server.port) as client:
        assert type(client.lock("job")) is compat.Lock
        assert type(client.lock("job", 10, 0.2, False, 1, redis.lock.Lock)) is redis.lock.Lock
        with client.lock("job", 10, 0.2, False) as lock:
            assert (lock.timeout, lock.sleep, lock.blocking) == (10, 0.2, False)


def test_locks_with_the_same_token_are_renewed_separately(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first is free after its ttl, another takes it, and its holder is told nothing."""
    monkeypatch.setattr(compat.Lock, "ttl", 0.6)
    locks = [
        compat.Lock(client, name, timeout=end) for name, end in (("A", None), ("B", None), ("C", 5))
    ]
    for lock in locks:
        assert lock.acquire(token="job-17")
    leases: list[Any] = [lock.lease for lock in locks]
    assert not leases[0].lost_event.wait(1.0)
    assert not leases[1].lost_event.wait(0.01)
    for lock in locks[1:]:
        lock.release()
    assert not leases[0].lost_event.wait(1.0)  # nor does the release of one end another's renewal
    assert client.get("A") == b"job-17"
    locks[0].release()
    assert not locks[0]._lock._watchdog.renewals
