"""The queue: first in, first out, exact waits, and no waiter that stops the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from .. import LockTimeout, RedisLock, Release, acquisition, blocking, wire
from ..command import WireError
from ..protocol import LEAVE
from ..testing.process import Process as Worker
from ..testing.server import Server, eventually
from .waiting import held, in_thread, queued, waiter


def test_waiters_get_the_lock_in_the_order_of_their_arrival(client: redis.Redis) -> None:
    lock = RedisLock(client, "fifo", ttl=10)
    with held(lock):
        waiters = [waiter(lock) for _ in range(20)]
    fences = []
    for each in waiters:
        lease = each.result(5)
        assert lease.fence is not None
        fences.append(lease.fence)
        lease.release()
    assert fences == sorted(fences)
    assert not lock.locked()


def test_a_releaser_that_asks_again_at_once_goes_to_the_end(client: redis.Redis) -> None:
    lock = RedisLock(client, "again", ttl=10)
    with held(lock) as first:
        others = [waiter(lock) for _ in range(3)]
        first.release()
        again = in_thread(lambda: lock.acquire(10))
        queued(lock, 3)
    for each in others:
        assert not again.done()
        each.result(5).release()
    again.result(5).release()


def test_a_newcomer_cannot_barge_in_where_the_lock_expired_under_a_queue(
    client: redis.Redis,
) -> None:
    lock = RedisLock(client, "barge", ttl=10)
    with held(lock) as holder:
        first = waiter(lock)
        client.delete("lock:{barge}")  # as if the holder's lease had ended
        assert lock.try_acquire() is None
        assert first.result(1).fence > (holder.fence or 0)  # type: ignore[operator]
    first.result().release()


def test_a_release_between_the_try_and_the_sleep_is_not_missed(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from .. import blocking as module

    lock = RedisLock(client, "lost wake-up", ttl=30)
    reached, go_on = threading.Event(), threading.Event()
    sleep = module._sleep

    def slow(*args: object) -> object:
        reached.set()
        go_on.wait(5)
        return sleep(*args)  # type: ignore[arg-type]

    with held(lock) as lease:
        monkeypatch.setattr(module, "_sleep", slow)
        other = in_thread(lambda: lock.acquire(20))
        reached.wait(5)
        lease.release()
        go_on.set()
        woken = time.monotonic()
        other.result(5).release()
    assert time.monotonic() - woken < 0.5


def test_the_wait_ends_on_time_while_others_keep_acquiring(client: redis.Redis) -> None:
    lock = RedisLock(client, "busy", ttl=10)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            with lock.hold(wait=10):
                stop.wait(0.005)

    with held(lock):
        others = [in_thread(churn) for _ in range(4)]
        queued(lock, 4)
        started = time.monotonic()
        with pytest.raises(LockTimeout):
            lock.acquire(0.3)
        assert 0.3 <= time.monotonic() - started < 0.6
        stop.set()
    for each in others:
        each.result(5)
    late = in_thread(lambda: lock.acquire(0.3))
    late.result(5).release()


@pytest.mark.parametrize("wait", [0.0, 0.001, 0.02])
def test_a_short_wait_still_tries_at_its_end(client: redis.Redis, wait: float) -> None:
    lock = RedisLock(client, "short", ttl=10)
    with held(lock):
        started = time.monotonic()
        with pytest.raises(LockTimeout):
            lock.acquire(wait)
        assert wait <= time.monotonic() - started < wait + 0.3
        assert lock.inspect().waiters == ()
    lock.acquire(wait).release()


def test_every_key_outlives_the_next_question_of_those_who_wait_and_no_longer(
    client: redis.Redis,
) -> None:
    lock = RedisLock(client, "mortal", ttl=10)
    with held(lock):
        other = waiter(lock)
        second = waiter(lock)
        for key in ("lock:{mortal}:queue", "lock:{mortal}:waiters"):
            assert 10_000 < client.pttl(key) <= 100_000
    other.result(5).release()
    second.result(5).release()


def test_a_waiter_that_receives_nothing_finds_at_its_end_that_the_lock_is_free(
    client: redis.Redis,
) -> None:
    lock = RedisLock(client, "deaf", ttl=10)
    with held(lock):
        other = waiter(lock, wait=0.2)
        client.delete("lock:{deaf}", "lock:{deaf}:queue", "lock:{deaf}:waiters")
        assert other.result(5).waited_seconds >= 0.2
    other.result().release()


def test_a_wait_may_be_longer_than_the_socket_timeout(server: Server) -> None:
    hurried = server.client(socket_timeout=0.2)
    lock = RedisLock(hurried, "long", ttl=10)
    with held(lock):
        other = waiter(lock)
        with pytest.raises(LockTimeout):
            lock.acquire(0.7)
    lease = other.result(5)
    assert lease.waited_seconds >= 0.7
    lease.release()


def test_more_waiters_than_connections_in_the_pool_wait_without_one(server: Server) -> None:
    client = server.client(max_connections=2)
    lock = RedisLock(client, "few", ttl=10)
    pubsub: Any = client.pubsub
    taken = [pubsub() for _ in range(2)]
    for each in taken:
        each.subscribe("any")  # which takes a connection out of the pool
    with held(lock):
        waiters = [waiter(lock) for _ in range(12)]
    for waiting in waiters:
        waiting.result(5).release()
    for each in taken:
        each.close()


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt in a thread that is not the main one."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit, Interrupted])
def test_any_exception_while_waiting_leaves_nothing_in_the_queue(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    from .. import blocking as module

    lock = RedisLock(client, "interrupted", ttl=10)
    seen = []

    def interrupt(*_: object) -> None:
        seen.append(lock.inspect().waiters)
        raise error

    with held(lock):
        monkeypatch.setattr(module, "_sleep", interrupt)
        with pytest.raises(error):
            lock.acquire(5)
        assert len(seen[0]) == 1
        assert lock.inspect().waiters == ()


def test_an_exception_after_the_hand_over_gives_the_lock_back(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from .. import blocking as module

    lock = RedisLock(client, "given up", ttl=10)
    with held(lock) as lease:

        def interrupt(*_: object) -> None:
            lease.release()
            assert lock.inspect().owner not in (None, lease.token)
            raise KeyboardInterrupt

        monkeypatch.setattr(module, "_sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(5)
    assert not lock.locked()


@pytest.mark.parametrize(
    ("released", "gets_it"),
    [("while it is queued", True), ("before its last question", True), ("after it", False)],
)
def test_a_hand_over_that_races_the_end_of_the_wait_has_exactly_one_owner(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, released: str, gets_it: bool
) -> None:
    """A waiter that is not woken any more asks once more, and leaves the queue in the same step."""
    lock = RedisLock(client, "race", ttl=10)
    ask = acquisition.Acquisition.ask

    def last_sleep(waiter: acquisition.Acquisition, *_: object) -> None:
        if released == "while it is queued":
            assert lease.release() is Release.RELEASED
            assert lock.inspect().owner == waiter.token.decode()
        waiter.end = 0.0

    def last_question(waiter: acquisition.Acquisition, *what: Any) -> Any:
        if what == (LEAVE,) and released == "before its last question":
            client.delete("lock:{race}:queue", "lock:{race}:waiters")  # its wait is over there too
            assert lease.release() is Release.RELEASED
        answer = yield from ask(waiter, *what)
        if what == (LEAVE,) and released == "after it":
            assert lease.release() is Release.RELEASED
        return answer

    lease = lock.acquire(1)
    monkeypatch.setattr(blocking, "_sleep", last_sleep)
    monkeypatch.setattr(acquisition.Acquisition, "ask", last_question)
    if gets_it:
        mine = lock.acquire(5)
        assert lock.inspect().owner == mine.token
        assert mine.release() is Release.RELEASED
    else:
        with pytest.raises(LockTimeout):
            lock.acquire(5)
    state = lock.inspect()
    assert (state.owner, state.waiters) == (None, ())


def test_a_waiter_whose_wait_is_over_is_not_handed_the_lock(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    lock = RedisLock(client, "over", ttl=10)
    asleep = worker()
    with held(lock) as lease:
        asleep.send("acquire", name="over", ttl=10, wait=0.5)
        queued(lock, 1)
        asleep.pause()
        second = waiter(lock)
        eventually(lambda: _clock(client) > lease.fence / 1e6 + 1.5)  # type: ignore[operator]
    second.result(1).release()
    asleep.resume()
    assert asleep.answer() == "LockTimeout" or asleep.ask("release") == "released"
    assert not lock.locked()


def _clock(client: redis.Redis) -> float:
    seconds, micros = client.time()
    return float(seconds + micros / 1e6)


def test_a_killed_head_waiter_costs_the_next_one_nothing(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    lock = RedisLock(client, "dead head", ttl=10)
    head = worker()
    with held(lock) as lease:
        head.send("acquire", name="dead head", ttl=10, wait=30)
        queued(lock, 1)
        second = waiter(lock)
        head.kill()
        released = time.monotonic()
        lease.release()
        second.result(5)
        assert time.monotonic() - released < 1
    second.result().release()


def test_waiters_ask_again_when_their_subscription_broke(
    client: redis.Redis,
) -> None:
    lock = RedisLock(client, "cut", ttl=30)
    with held(lock) as lease:
        other = waiter(lock)
        channel = lock._wakeups.channel
        client.client_kill_filter(_type="pubsub")
        eventually(lambda: lock._wakeups.listening and lock._wakeups.channel != channel)
        eventually(lambda: lock._wakeups.channel in client.hvals("lock:{cut}:waiters")[0])
        released = time.monotonic()
        lease.release()
        other.result(5)
        assert time.monotonic() - released < 0.5
    other.result().release()


def test_a_release_while_the_subscription_is_broken_wastes_no_lease(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ..wakeups import WakeUps

    lock = RedisLock(client, "deaf for a while", ttl=30)
    broken, go_on = threading.Event(), threading.Event()
    listen = WakeUps.listen

    def late(self: WakeUps, until: float) -> None:
        if not self.listening:
            broken.set()
            go_on.wait(5)
        listen(self, until)

    with held(lock) as lease:
        other = waiter(lock)
        monkeypatch.setattr(WakeUps, "listen", late)
        client.client_kill_filter(_type="pubsub")
        assert broken.wait(5)
        lease.release()  # given to nobody: the waiter's channel has no receiver
        assert not lock.locked()
        go_on.set()
        other.result(5).release()


def test_a_waiter_that_could_not_say_that_it_gave_up_gives_back_what_it_is_handed(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from .. import blocking as module

    lock = RedisLock(client, "mute", ttl=30)

    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(wire.Connections, "call", unreachable)
        raise Interrupted

    def unreachable(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise WireError(redis.ConnectionError("cut"), sent=True)

    with held(lock) as lease:
        monkeypatch.setattr(module, "_sleep", interrupt)
        with pytest.raises(Interrupted):
            lock.acquire(20)
        assert len(lock.inspect().waiters) == 1  # the server still thinks that it waits
        next_one = waiter(lock)
        lease.release()
    next_one.result(1).release()


def test_a_wake_up_for_a_lease_that_is_held_already_does_not_release_it(
    client: redis.Redis,
) -> None:
    lock = RedisLock(client, "late wake", ttl=10)
    with held(lock) as first:
        other = waiter(lock)
    lease = other.result(5)
    client.publish(lock._wakeups.channel, "noise")
    client.publish(lock._wakeups.channel, f"{lease.token} {lease.fence} {lease.fence}")
    with held(RedisLock(client, "after it", ttl=10)):
        barrier = waiter(RedisLock(client, "after it", ttl=10))
    barrier.result(5).release()  # its wake-up was read after the one above
    assert lock.inspect().owner == lease.token
    assert first.outcome is Release.RELEASED
    lease.release()
