"""Who is next when some of those who wait are dead, paused or cut off."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
import redis

from .. import RedisLock
from ..testing.process import Process as Worker
from ..testing.server import Server, eventually
from .waiting import held, in_thread, queued, waiter


def test_a_monitoring_tool_that_subscribes_to_everything_brings_no_dead_waiter_to_life(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    lock = RedisLock(client, "monitored", ttl=2)
    dead = [worker() for _ in range(3)]
    pubsub: Any = client.pubsub
    with pubsub() as monitor:
        monitor.psubscribe("*")
        assert monitor.get_message(timeout=5)
        with held(lock) as lease:
            for count, process in enumerate(dead, 1):
                process.send("acquire", name="monitored", ttl=2, wait=30)
                queued(lock, count)
            other = waiter(lock)
            for process in dead:
                process.kill()
            released = time.monotonic()
            lease.release()
            other.result(10).release()
    assert time.monotonic() - released < 0.5


def test_the_waiters_of_a_paused_process_cost_the_next_one_its_ttl_once_and_not_each(
    client: redis.Redis, worker: Callable[[], Worker]
) -> None:
    lock = RedisLock(client, "paused crowd", ttl=1)
    crowd = worker()
    with held(lock) as lease:
        crowd.ask("crowd", name="paused crowd", ttl=1, wait=60, waiters=8)
        queued(lock, 8)
        other = waiter(lock, wait=30)
        crowd.pause()
        released = time.monotonic()
        lease.release()
        mine = other.result(20)
    assert time.monotonic() - released < 3
    crowd.resume()
    eventually(lambda: len(lock.inspect().waiters) >= 7)  # they ask again: nobody was forgotten
    mine.release()
    eventually(lambda: not lock.locked() and not lock.inspect().waiters)


def test_waiters_whose_subscription_broke_at_a_release_keep_their_places(
    client: redis.Redis, worker: Callable[[], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can be woken goes first; not those who come when the others are back."""
    lock = RedisLock(client, "kept places", ttl=30)
    order: list[str] = []
    first, second, last = worker(), worker(), worker()

    def turn(who: str) -> None:
        with lock.hold(wait=30):
            order.append(who)

    def queue_up(process: Worker) -> None:
        waiters = len(lock.inspect().waiters)
        process.send("acquire", name="kept places", ttl=30, wait=30)
        queued(lock, waiters + 1)

    with held(lock) as lease:
        ours = []
        for number in range(3):
            ours.append(in_thread(partial(turn, f"ours {number}")))
            queued(lock, number + 1)
        queue_up(first)
        queue_up(second)
        with broken_subscription(client, lock):
            lease.release()
            first.answer()
            assert first.ask("release") == "released"
            second.answer()
        queued(lock, 3)  # ours are back
        queue_up(last)
        eventually(lambda: all_listen(client))
        assert second.ask("release") == "released"
        last.answer()
        assert order == ["ours 0", "ours 1", "ours 2"]
        assert last.ask("release") == "released"
    for each in ours:
        each.result(5)


class broken_subscription:
    """In the block this process's waiters have no subscription; the other processes' have."""

    def __init__(self, client: redis.Redis, lock: RedisLock) -> None:
        self.client = client
        self.wakeups = lock._wakeups

    def __enter__(self) -> None:
        self.go_on = threading.Event()
        listen = type(self.wakeups).listen

        def late(wakeups: Any, until: float) -> None:
            if wakeups is self.wakeups and not wakeups.waiters.listening:
                self.go_on.wait(5)
            listen(wakeups, until)

        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(type(self.wakeups), "listen", late)
        channel = self.wakeups.waiters.channel.decode()
        name = self.client.client_list(_type="pubsub")
        port = self.wakeups._connection._sock.getsockname()[1]
        address = next(each["addr"] for each in name if each["addr"].endswith(f":{port}"))
        self.client.client_kill_filter(addr=address)
        eventually(lambda: self.client.pubsub_numsub(channel)[0][1] == 0)

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self.patch.undo()


def all_listen(client: redis.Redis) -> bool:
    """Whether every channel that a waiter names has its subscriber."""
    waiters = client.hgetall("lock:{kept places}:waiting")
    channels = {value.split()[0] for token, value in waiters.items() if token != b"*"}
    return all(count == 1 for _, count in client.pubsub_numsub(*channels))


def test_a_lease_that_nobody_adopts_costs_no_waiter_of_its_first_process_its_place(
    server: Server,
) -> None:
    """Of two clients, as of two processes: that first process is neither paused nor dead."""
    one, other = (RedisLock(server.client(), "places", ttl=1) for _ in range(2))
    first = other.acquire(1)
    given = waiter(one)
    first.release()  # the server notes to which process it gave the lock
    lease = given.result(5)
    order: list[str] = []

    def stand(lock: RedisLock, name: str, place: int) -> Future[None]:
        def turn() -> None:
            with lock.hold(wait=10):
                order.append(name)

        turned = in_thread(turn)
        queued(lock, place)
        return turned

    turns = [stand(one, "one", 1), stand(other, "other", 2)]
    lease.hand_over(within=0.3)
    for watch in one._wakeups.waiters._watches.values():
        watch.until += 0.5  # so that the other one asks first
    for each in turns:
        each.result(10)
    assert order == ["one", "other"]
