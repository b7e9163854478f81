"""What a release finds, and what leaving the block may raise."""

from __future__ import annotations

import logging

import pytest
import redis

from .. import LockNotHeld, RedisLock, Release
from ..errors import LossReason
from ..testing.proxy import Proxy
from ..testing.server import Server, eventually
from .waiting import held, waiter


def test_the_release_of_an_expired_lease_leaves_the_next_holder_its_lock(
    client: redis.Redis,
) -> None:
    lock = RedisLock(client, "late", ttl=10)
    late = lock.acquire(1)
    client.delete("lock:{late}")  # as if it had expired
    with held(lock) as current:
        assert late.release() is Release.EXPIRED
        assert lock.inspect().owner == current.token


def test_a_release_distinguishes_absent_other_and_silent_server(
    server: Server, client: redis.Redis, proxy: Proxy
) -> None:
    lock = RedisLock(client, "outcomes", ttl=10)
    assert lock.acquire(1).release() is Release.RELEASED
    absent = lock.acquire(1)
    client.delete("lock:{outcomes}")
    assert absent.release() is Release.EXPIRED
    far = RedisLock(server.client(port=proxy.port, socket_timeout=1), "outcomes", ttl=10)
    lease = far.acquire(1)
    proxy.lose_reply(b"EVALSHA")
    assert lease.release() is Release.UNKNOWN
    assert not lock.locked()


@pytest.mark.parametrize("reached", [True, False])
def test_a_release_that_failed_may_be_called_again(
    server: Server, client: redis.Redis, proxy: Proxy, reached: bool
) -> None:
    lock = RedisLock(server.client(port=proxy.port, socket_timeout=1), "twice", ttl=10)
    lock.acquire(1).release()  # the server has the scripts now
    lease = lock.acquire(1)
    if reached:
        proxy.lose_reply(b"EVALSHA")
    else:
        proxy.lose_request(b"\r\n")
    assert lease.release() is Release.UNKNOWN
    # The first release may have freed it, which is not the same as a lease that expired.
    assert lease.release() is (Release.UNKNOWN if reached else Release.RELEASED)
    assert not RedisLock(client, "twice", ttl=10).locked()


def test_a_release_that_the_server_never_saw_is_repeated_long_before_the_ttl_ends_it(
    server: Server, client: redis.Redis, proxy: Proxy
) -> None:
    lock = RedisLock(server.client(port=proxy.port, socket_timeout=1), "repeated", ttl=60)
    lease = lock.acquire(1)
    proxy.lose_request(b"\r\n")
    assert lease.release() is Release.UNKNOWN
    near = RedisLock(client, "repeated", ttl=60)
    eventually(lambda: not near.locked())


def test_the_body_s_exception_is_never_masked(server: Server) -> None:
    gone = Server()
    lock = RedisLock(gone.client(socket_timeout=0.5), "masked", ttl=10)
    with pytest.raises(ZeroDivisionError), lock.hold(wait=1):  # noqa: PT012
        gone.kill()
        raise ZeroDivisionError
    gone.stop()


@pytest.mark.parametrize("noticed", [True, False])
def test_an_exception_after_the_lease_was_lost_has_a_note(
    client: redis.Redis, noticed: bool
) -> None:
    lock = RedisLock(client, "noted", ttl=10)
    with pytest.raises(ZeroDivisionError) as caught, lock.hold(wait=1) as lease:  # noqa: PT012
        client.delete("lock:{noted}")
        if noticed:
            lease.mark_lost(LossReason.GONE)
        raise ZeroDivisionError
    assert caught.value.__notes__[0].endswith("gone" if noticed else "expired")


def test_leaving_the_block_after_the_lease_expired_does_not_raise(
    client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    lock = RedisLock(client, "committed", ttl=10)
    with caplog.at_level(logging.WARNING), lock.hold(wait=1) as lease:
        client.delete("lock:{committed}")
    assert lease.outcome is Release.EXPIRED
    assert "expired" in caplog.text


def test_a_lease_is_of_no_use_after_its_release(client: redis.Redis) -> None:
    lease = RedisLock(client, "used", ttl=10).acquire(1)
    lease.release()
    assert lease.remaining() == 0
    for use in (lease.release, lease.check):
        with pytest.raises(LockNotHeld, match="released"):
            use()
    assert not lease.lost


def test_a_forced_release_wakes_the_next_waiter_and_the_old_holder_notices(
    client: redis.Redis,
) -> None:
    lock = RedisLock(client, "forced", ttl=0.9)
    assert not lock.force_release()
    holder = lock.acquire(1)
    other = waiter(lock)
    assert lock.force_release()
    mine = other.result(0.5)
    assert (mine.fence or 0) > (holder.fence or 0)
    assert holder.lost_event.wait(0.9)
    assert holder.loss is LossReason.TAKEN
    assert holder.release() is Release.EXPIRED
    mine.check()
    assert mine.release() is Release.RELEASED
    assert not lock.locked()
