"""Tests that locks.compat.Lock behaves as redis-py's Lock, with two intended differences.

A lock without a `timeout` has a ttl that is renewed. A waiter does not poll, so `sleep` has no
effect, and the wait ends exactly at `blocking_timeout`.
"""

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError

from .. import Lease, RedisLock, compat, redis_lock
from ..testing.server import Server, eventually
from .waiting import run_in_thread, wait_until_queued

MakeLock = Callable[..., compat.Lock]
#: Longer than DEFAULT_FENCE_TTL_SECONDS, for which the server remembers a fence.
MONTH_SECONDS = 30 * 24 * 3600.0


@pytest.mark.parametrize("timeout", [None, 9.5, 20])
def test_key_value_and_expiry_match_redis_py(
    client: redis.Redis, make_compat_lock: MakeLock, timeout: float | None
) -> None:
    """The value of the key is the token, and the key expires after the timeout."""
    lock = make_compat_lock(timeout=timeout)
    assert lock.acquire(blocking=False) is True
    assert client.get("job") == lock.local.token
    # Without a timeout the key expires after 10 s (compat.Lock.ttl). With redis-py it never does.
    ttl_ms = (timeout or 10) * 1000
    assert ttl_ms - 1000 < client.pttl("job") <= ttl_ms
    lock.release()
    assert client.get("job") is None
    assert lock.local.token is None


@pytest.mark.parametrize("timeout", [None, MONTH_SECONDS])
def test_lock_may_last_longer_than_fences_are_remembered(
    client: redis.Redis,
    make_compat_lock: MakeLock,
    monkeypatch: pytest.MonkeyPatch,
    timeout: float | None,
) -> None:
    """The server forgets a fence after a week. The lock lasts for a month.

    The month is the lock's timeout or, without a timeout, compat.Lock.ttl.
    """
    monkeypatch.setattr(compat.Lock, "ttl", MONTH_SECONDS)
    with make_compat_lock(timeout=timeout):
        assert client.ttl("job") >= MONTH_SECONDS - 60  # 60 s of tolerance


@pytest.mark.parametrize("thread_local", [True, False])
@pytest.mark.parametrize("token", ["mine", b"mine"])
def test_caller_may_choose_the_token(
    client: redis.Redis, make_compat_lock: MakeLock, token: str | bytes, thread_local: bool
) -> None:
    """The caller's token is the value of the lock's key."""
    lock, second_lock = make_compat_lock(thread_local=thread_local), make_compat_lock()
    assert lock.acquire(blocking=False, token=token)
    assert client.get("job") == lock.local.token == b"mine"
    # The lock is taken, also for a second acquisition with the same token.
    assert second_lock.acquire(blocking=False, token=token) is False
    lock.release()
    assert client.get("job") is None


@pytest.mark.parametrize("token", ["*", ""])
def test_reserved_token_is_refused(make_compat_lock: MakeLock, token: str) -> None:
    """An empty token, and the token *, which would mean any holder, are refused."""
    with pytest.raises(ValueError, match="no other holder uses"):
        make_compat_lock().acquire(token=token)


@pytest.mark.parametrize("decode", [True, False])
def test_locked_sees_any_holder_and_owned_only_this_lock(server: Server, decode: bool) -> None:
    """Two lock objects have the same name. Each of them is acquired in turn."""
    client = server.make_client(decode_responses=decode)
    first_lock, second_lock = (client.lock("job", lock_class=compat.Lock) for _ in range(2))
    for lock, other_lock in ((first_lock, second_lock), (second_lock, first_lock)):
        assert (lock.locked(), lock.owned(), other_lock.owned()) == (False, False, False)
        assert lock.acquire(blocking=False)
        assert not other_lock.acquire(blocking=False)
        assert (lock.locked(), lock.owned()) == (True, True)
        assert (other_lock.locked(), other_lock.owned()) == (True, False)
        lock.release()


def test_only_a_lock_without_a_timeout_is_renewed(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock with a timeout of 0.3 s expires. A lock without a timeout is renewed."""
    monkeypatch.setattr(compat.Lock, "ttl", 3)
    expiring_lock = client.lock("expiring", timeout=0.3, lock_class=compat.Lock)
    renewed_lock = client.lock("renewed", lock_class=compat.Lock)
    assert expiring_lock.acquire()
    assert renewed_lock.acquire()
    token = renewed_lock.local.token
    del renewed_lock  # the lock is still renewed: another process may have the token
    gc.collect()
    eventually(lambda: not client.exists("expiring"))
    # The ttl of 3 s falls below 2.5 s, and a renewal sets it to 3 s again.
    eventually(lambda: client.pttl("renewed") < 2500)
    eventually(lambda: client.pttl("renewed") > 2500)
    assert client.get("renewed") == token
    with pytest.raises(LockNotOwnedError):
        expiring_lock.release()
    second_lock = client.lock("renewed", lock_class=compat.Lock)
    second_lock.local.token = token
    second_lock.release()
    assert not second_lock._lock._watchdog.renewals
    assert not client.exists("renewed")


def test_interrupted_acquire_without_a_timeout_is_not_renewed(
    client: redis.Redis, make_compat_lock: MakeLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KeyboardInterrupt is raised in acquire(), after the lock was acquired.

    The caller does not have the token, so nothing could release the lock if it was renewed.
    """
    monkeypatch.setattr(compat.Lock, "ttl", 0.6)

    def interrupt(_: object, event: str, *__: object) -> None:
        if event == "waited":  # the hook after the acquisition
            raise KeyboardInterrupt

    monkeypatch.setattr(redis_lock.RedisLock, "call_metrics_hook", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_compat_lock().acquire()
    gc.collect()
    eventually(lambda: not client.exists("job"))


def test_lock_that_expires_during_acquire_is_an_error(
    make_compat_lock: MakeLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """acquire(token=...) hands the lock over to that token, but the lock has expired by then.

    The exception is one of redis-py's.
    """
    hand_over = Lease.hand_over

    def hand_over_late(lease: Lease) -> str:
        time.sleep(0.1)  # as if the process were paused
        return hand_over(lease)

    monkeypatch.setattr(Lease, "hand_over", hand_over_late)
    with pytest.raises(LockNotOwnedError, match="ended at once"):
        make_compat_lock(timeout=0.05).acquire(token="mine")


def test_acquire_returns_false_at_the_end_of_its_wait(make_compat_lock: MakeLock) -> None:
    """Another holder has the lock. The wait is an argument of the lock or of acquire()."""
    with make_compat_lock(blocking=False):
        waiting_lock = make_compat_lock(sleep=0.05, blocking_timeout=0.3)
        started = time.monotonic()
        assert waiting_lock.acquire() is False
        assert 0.3 <= time.monotonic() - started < 0.8
        started = time.monotonic()
        assert waiting_lock.acquire(blocking=False) is False
        # As in redis-py, there is only one try if `sleep` is longer than the wait.
        assert waiting_lock.acquire(sleep=60, blocking_timeout=1) is False
        assert time.monotonic() - started < 0.5
        with pytest.raises(LockError) as caught, waiting_lock:
            pass
        assert getattr(caught.value, "lock_name", None) == "job"


def test_waiter_is_woken_without_polling(client: redis.Redis, make_compat_lock: MakeLock) -> None:
    """A waiter with a `sleep` of 30 s gets the lock within 1 s of the release."""
    lock = make_compat_lock()
    assert lock.acquire()
    waiter = run_in_thread(lambda: make_compat_lock(sleep=30).acquire(blocking_timeout=60))
    wait_until_queued(RedisLock(client, "job", key="job", ttl=1), 1)  # the queue of the same key
    lock.release()
    assert waiter.result(1) is True


def test_unacquired_lock_cannot_be_used(make_compat_lock: MakeLock) -> None:
    """A lock that was not acquired cannot be released, extended or reacquired."""
    lock = make_compat_lock(timeout=10)
    for method in (lock.release, lambda: lock.extend(1), lock.reacquire):
        with pytest.raises(LockError, match="acquire the lock first"):
            method()


def test_lock_with_another_holder_cannot_be_used(
    client: redis.Redis, make_compat_lock: MakeLock
) -> None:
    """A lock that another holder has taken cannot be released, extended or reacquired."""
    lock = make_compat_lock(timeout=10)
    assert lock.acquire()
    client.set("job", "another", px=10_000)
    for method in (lambda: lock.extend(1), lock.reacquire, lock.release):
        with pytest.raises(LockNotOwnedError):
            method()
    assert lock.local.token is None  # forgotten by release()
    assert client.get("job") == b"another"


def test_lock_without_a_timeout_cannot_be_extended(make_compat_lock: MakeLock) -> None:
    """A lock without a timeout can be neither extended nor reacquired."""
    with make_compat_lock() as lock:
        for method in (lambda: lock.extend(1), lock.reacquire):
            with pytest.raises(LockError, match="no timeout"):
                method()


def test_extend_and_reacquire_set_the_expiry(
    client: redis.Redis, make_compat_lock: MakeLock
) -> None:
    """extend() and reacquire() move the expiry of the key and the deadline of the lease."""
    with make_compat_lock(timeout=10) as lock:
        assert lock.lease is not None
        # The timeout of 10 s is extended by 10 s.
        assert lock.extend(10) is True
        assert 19_000 < client.pttl("job") <= 20_000
        assert 18 < lock.lease.remaining() < 20
        # It is replaced by 10 s from now on.
        assert lock.extend(10.0, replace_ttl=True)
        assert 9000 < client.pttl("job") <= 10_000
        assert lock.lease.remaining() < 10
        # reacquire() sets the expiry to the timeout again.
        client.pexpire("job", 5000)
        assert lock.reacquire() is True
        assert 9000 < client.pttl("job") <= 10_000


@pytest.mark.parametrize("loss", ["deleted", "released"])
def test_block_exit_without_the_lock_raises(
    client: redis.Redis, make_compat_lock: MakeLock, loss: str
) -> None:
    """The lock is deleted or released in the block, so the exit of the block raises an error.

    With raise_on_release_error=False it raises none.
    """

    def leave_block(**options: Any) -> None:
        with make_compat_lock(timeout=10, **options) as lock:
            if loss == "deleted":
                client.delete("job")
            else:
                lock.release()

    with pytest.raises(LockNotOwnedError if loss == "deleted" else LockError):
        leave_block()
    leave_block(raise_on_release_error=False)


def test_block_exit_keeps_the_body_exception(
    client: redis.Redis, make_compat_lock: MakeLock
) -> None:
    """The lock is deleted in the block. The exception of the block has a note about that."""
    with pytest.raises(ZeroDivisionError) as caught, make_compat_lock(timeout=10):  # noqa: PT012
        client.delete("job")
        raise ZeroDivisionError
    assert "ended before" in caught.value.__notes__[0]
