"""A lease: what its release finds, what its block may raise, who may use it, and its fence."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

import pytest
import redis

from .. import LockError, LockLost, LockNotHeld, RedisLock, Release
from ..clock import now
from ..lease import LossReason
from ..testing.process import Process as Worker
from ..testing.proxy import Proxy
from ..testing.server import Server, eventually
from .waiting import held, in_thread, waiter


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
    proxy.cut_reply_to(b"EVALSHA")
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
        proxy.cut_reply_to(b"EVALSHA")
    else:
        proxy.refuse_next()
    assert lease.release() is Release.UNKNOWN
    # The first release may have freed it, which is not the same as a lease that expired.
    assert lease.release() is (Release.UNKNOWN if reached else Release.RELEASED)
    assert not RedisLock(client, "twice", ttl=10).locked()


def test_a_release_that_the_server_never_saw_is_repeated_long_before_the_ttl_ends_it(
    server: Server, client: redis.Redis, proxy: Proxy
) -> None:
    lock = RedisLock(server.client(port=proxy.port, socket_timeout=1), "repeated", ttl=60)
    lease = lock.acquire(1)
    proxy.refuse_next()
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


def test_a_lease_may_be_released_by_another_thread(client: redis.Redis) -> None:
    lock = RedisLock(client, "passed on", ttl=10)
    lease = lock.acquire(1)
    assert in_thread(lease.release).result(5) is Release.RELEASED
    assert not lock.locked()


def test_threads_that_share_a_lock_object_get_leases_of_their_own(client: redis.Redis) -> None:
    lock = RedisLock(client, "shared", ttl=10)
    inside, overlaps, tokens = [0], [], set()

    def work() -> None:
        for _ in range(10):
            with lock.hold(wait=20) as lease:
                inside[0] += 1
                overlaps.append(inside[0])
                tokens.add(lease.token)
                inside[0] -= 1

    for each in [in_thread(work) for _ in range(8)]:
        each.result(30)
    assert set(overlaps) == {1}
    assert len(tokens) == 80


def test_a_lock_decorates_a_function(client: redis.Redis) -> None:
    lock = RedisLock(client, "decorated", ttl=10)

    @lock.hold(wait=1)
    def owner() -> str | None:
        return lock.inspect().owner

    assert owner() != owner()
    assert not lock.locked()


def test_inspect_shows_the_owner_the_time_left_and_the_waiters_in_order(
    client: redis.Redis,
) -> None:
    lock = RedisLock(client, "seen", ttl=10)
    assert lock.inspect().owner is None
    with held(lock) as lease:
        first, second = waiter(lock), waiter(lock)
        seen = lock.inspect()
        assert (seen.owner, seen.fence) == (lease.token, lease.fence)
        assert 9 < seen.left <= 10
    assert first.result(5).token == seen.waiters[0]
    first.result().release()
    assert second.result(5).token == seen.waiters[1]
    second.result().release()
    assert client.ttl("lock:{seen}:queue") == -2


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


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, 0.0004])
def test_a_ttl_that_cannot_work_is_refused(client: redis.Redis, ttl: float) -> None:
    with pytest.raises(ValueError, match="give seconds"):
        RedisLock(client, "x", ttl=ttl)


@pytest.mark.parametrize("wait", [-1, math.nan])
def test_a_wait_that_cannot_work_is_refused(client: redis.Redis, wait: float) -> None:
    with pytest.raises(ValueError, match="give seconds"):
        RedisLock(client, "x", ttl=1).acquire(wait)


def test_bad_arguments_say_what_to_do(server: Server, client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="say what it protects"):
        RedisLock(client, "", ttl=1)
    with pytest.raises(ValueError, match="at least the ttl"):
        RedisLock(client, "x", ttl=10, max_hold=5)
    with pytest.raises(TypeError, match=r"redis\.Redis"):
        RedisLock(object(), "x", ttl=1)  # type: ignore[arg-type]


def test_fences_rise_across_release_expiry_hand_over_and_data_loss(client: redis.Redis) -> None:
    lock = RedisLock(client, "rising", ttl=10)
    fences: list[int | None] = []
    for _ in range(3):
        with held(lock) as lease:
            fences.append(lease.fence)
    fences.append(lock.acquire(1).fence)
    client.delete("lock:{rising}")  # it expired
    with held(lock) as lease:
        fences.append(lease.fence)
        other = waiter(lock)
    fences.append(other.result(5).fence)  # it was handed over
    client.flushall()
    with held(lock) as lease:
        fences.append(lease.fence)
    known = [fence for fence in fences if fence is not None]
    assert len(known) == len(fences) == len(set(known))
    assert known == sorted(known)


def test_a_fence_has_all_its_digits(client: redis.Redis) -> None:
    lock = RedisLock(client, "digits", ttl=10)
    client.set("lock:{digits}:fence", 2**52 + 1, px=60_000)
    with held(lock) as lease:
        assert lease.fence == 2**52 + 2
        other = waiter(lock)
        assert client.get("lock:{digits}:fence") == b"%d" % (2**52 + 2)
    assert other.result(5).fence == 2**52 + 3
    other.result().release()


def test_the_last_fence_is_remembered_for_days_and_not_for_ever(client: redis.Redis) -> None:
    with held(RedisLock(client, "week", ttl=10)):
        pass
    assert 6 * 86400 < client.ttl("lock:{week}:fence") <= 7 * 86400


def test_a_paused_holder_knows_when_it_wakes_that_its_lease_is_over(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    lock = RedisLock(client, "paused holder", ttl=10)
    holder = worker()
    stale = holder.ask("acquire", name="paused holder", ttl=0.3, wait=1)
    holder.pause()
    with held(lock) as lease:
        assert lease.fence is not None
        assert lease.fence > stale["fence"]
        holder.resume()
        assert holder.ask("check") == "LockLost"
        assert holder.ask("release") == "expired"
        assert lock.inspect().owner == lease.token


def test_a_waiter_that_was_paused_past_its_lease_does_not_believe_in_it(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    lock = RedisLock(client, "paused waiter", ttl=10)
    sleeper = worker()
    with held(lock):
        sleeper.send("acquire", name="paused waiter", ttl=0.3, wait=30)
        eventually(lambda: len(lock.inspect().waiters) == 1)
        sleeper.pause()
    handed = lock.inspect()
    assert handed.owner is not None
    with held(lock) as lease:  # once the sleeper's lease has ended
        sleeper.resume()
        eventually(lambda: lock.inspect().waiters == (handed.owner,))  # it asked, and queues again
        assert lock.inspect().owner == lease.token
    got = sleeper.answer()
    assert got["fence"] > (lease.fence or 0)
    assert sleeper.ask("release") == "released"


def test_the_client_s_wall_clock_may_jump(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RedisLock(client, "wall clock", ttl=10)
    with held(lock) as lease:
        other = waiter(lock)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        lease.check()
        assert 9 < lease.remaining() < 10
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert 9 < other.result(5).remaining() < 10
    other.result().release()


def test_on_lost_may_fail_and_is_called_once(
    client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[LossReason] = []
    done = threading.Event()

    def on_lost(_: object, loss: LossReason) -> None:
        called.append(loss)
        done.set()
        raise ZeroDivisionError

    lease = RedisLock(client, "called", ttl=10, on_lost=on_lost).acquire(1)
    lease.deadline = now()
    with pytest.raises(LockLost):
        lease.check()
    lease.mark_lost(LossReason.TAKEN)
    assert done.wait(5)
    eventually(lambda: "ZeroDivisionError" in caplog.text)
    assert called == [LossReason.EXPIRED]
    lease.release()


def test_every_error_is_a_lock_error_and_names_its_lock() -> None:
    assert issubclass(LockLost, LockError)
    assert str(LockLost(name="product:42")).startswith("product:42: ")
