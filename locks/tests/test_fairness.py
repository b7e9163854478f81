"""Tests of the order in which waiters get the lock if some of them are dead, paused or cut off.

A worker is a separate process. Other waiters are threads of the process of the test.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis

from .. import RedisLock
from ..testing.server import Server, eventually
from .contract.lock_factories import make_server_factory
from .waiting import (
    StartWorker,
    count_subscribers,
    hold_lock,
    run_in_thread,
    start_recording_waiter,
    start_waiter,
    wait_until_queued,
)
from .worker import Worker


def test_monitoring_subscription_revives_no_dead_waiter(
    client: redis.Redis, start_worker: StartWorker
) -> None:
    """A monitoring tool subscribes to all channels by a pattern. Dead waiters are still skipped.

    A release skips a waiter if its channel has no subscriber. The tool must not count as one.
    """
    lock = RedisLock(client, "monitored", ttl=2)
    workers = [start_worker() for _ in range(3)]
    pubsub: Any = client.pubsub
    with pubsub() as monitor:
        monitor.psubscribe("*")
        assert monitor.get_message(timeout=5)  # the confirmation of the subscription
        with hold_lock(lock) as lease:
            for count, worker in enumerate(workers, 1):
                worker.send("acquire", name="monitored", ttl=2, wait=30)
                wait_until_queued(lock, count)
            waiter = start_waiter(lock)
            for worker in workers:
                worker.kill()
            released_at = time.monotonic()
            lease.release()
            waiter.result(10).release()
    assert time.monotonic() - released_at < 0.5  # no dead waiter had the lock for its ttl of 2 s


def test_waiters_keep_their_places_if_the_subscription_breaks(
    client: redis.Redis, lock: RedisLock, start_worker: StartWorker
) -> None:
    """The subscription that wakes the waiters in this process breaks and comes back.

    While the waiters cannot be woken, two workers that came after them get the lock. Afterwards the
    waiters have their places again: they are served before a worker that comes after that.
    """
    served: list[str] = []
    first_worker, second_worker, newcomer = start_worker(), start_worker(), start_worker()

    def queue_up(worker: Worker) -> None:
        waiters_before = len(lock.inspect().waiters)
        worker.send("acquire", name=lock.name, ttl=30, wait=30)
        wait_until_queued(lock, waiters_before + 1)

    with hold_lock(lock) as lease:
        our_waiters = [
            start_recording_waiter(lock, f"our waiter {number}", served) for number in range(3)
        ]
        queue_up(first_worker)
        queue_up(second_worker)
        with break_subscription(client, lock):
            lease.release()
            first_worker.read_reply()
            assert first_worker.run("release") == "released"
            second_worker.read_reply()
        wait_until_queued(lock, 3)  # our waiters are in the queue again
        queue_up(newcomer)
        eventually(lambda: set(count_subscribers(lock)) == {1})  # every waiter can be woken again
        assert second_worker.run("release") == "released"
        newcomer.read_reply()
        assert served == ["our waiter 0", "our waiter 1", "our waiter 2"]
        assert newcomer.run("release") == "released"
    for our_waiter in our_waiters:
        our_waiter.result(5)


@contextmanager
def break_subscription(client: redis.Redis, lock: RedisLock) -> Iterator[None]:
    """Cut the subscription that wakes this process's waiters.

    A new subscription is delayed until the block ends, but for at most 5 s.
    """
    our_wakeups = lock._wakeups
    end_of_block = threading.Event()
    listen = type(our_wakeups).listen

    def listen_late(wakeups: Any, until: float) -> None:
        if wakeups is our_wakeups and not wakeups.waiters.is_listening:
            end_of_block.wait(5)
        listen(wakeups, until)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(our_wakeups), "listen", listen_late)
        channel = our_wakeups.waiters.channel
        local_port = our_wakeups._connection._sock.getsockname()[1]
        addresses = [connection["addr"] for connection in client.client_list(_type="pubsub")]
        our_address = next(address for address in addresses if address.endswith(f":{local_port}"))
        client.client_kill_filter(addr=our_address)
        eventually(lambda: client.pubsub_numsub(channel)[0][1] == 0)
        yield
        end_of_block.set()


def test_unadopted_lease_costs_no_waiter_its_place(server: Server) -> None:
    """Process A hands over its lease, no process adopts the lease, and the lease expires.

    The waiter of A came before the waiter of B, and still gets the lock before B. The server skips
    the waiters of a paused process, and must not mistake A for a paused process. In this test A and
    B are clients of one process.
    """
    lock_of_a, lock_of_b = (RedisLock(server.make_client(), "places", ttl=1) for _ in range(2))
    first_lease = lock_of_b.acquire(1)
    waiter_of_a = start_waiter(lock_of_a)
    first_lease.release()  # the server records that it handed the lock to A
    lease_of_a = waiter_of_a.result(5)
    served: list[str] = []
    waiters = [
        start_recording_waiter(lock_of_a, "A", served),
        start_recording_waiter(lock_of_b, "B", served),
    ]
    lease_of_a.hand_over(within=0.3)
    for lock_waiters in lock_of_a._wakeups.waiters._lock_waiters_by_key.values():
        lock_waiters.lease_ends_at += 0.5  # A polls later, so B's poll finds that the lease ended
    for waiter in waiters:
        waiter.result(10)
    assert served == ["A", "B"]


def test_forced_release_of_a_free_lock_keeps_the_paused_process_marked(
    client: redis.Redis, start_worker: StartWorker
) -> None:
    """The lock is handed to a paused process with three waiters, and that lease expires.

    force_release() then finds no holder. The server has marked the paused process (by the field
    "*" of KEYS[3] in hand_over.lua), and skips its waiters from then on. force_release() must not
    delete this mark. So the next try gets the lock.
    """
    lock = RedisLock(client, "forced", ttl=0.5)
    worker = start_worker()
    with hold_lock(lock):
        worker.run("start_threads", name="forced", ttl=0.5, wait=60, count=3)
        wait_until_queued(lock, 3)
        worker.pause()
    eventually(lambda: not lock.locked())
    assert lock.inspect().waiters
    assert not lock.force_release()
    lease = lock.try_acquire()  # None if the lock was handed to the paused process once more
    assert lease is not None
    lease.release()


WAITER_COUNT = 600
#: For each waiter the server runs 29 commands: two scripts and the commands that they call. It
#: runs more if the waiter polls again. (A bound on the time would depend on the machine.)
MAX_COMMANDS_PER_WAITER = 40


def count_commands(client: redis.Redis) -> int:
    """Return how many commands the server has run, including those called by scripts."""
    stats: Any = client.info("commandstats")
    return sum(command_stats["calls"] for command_stats in stats.values())


@pytest.mark.parametrize("lock_kind", ["threads", "asyncio"])
def test_cut_subscription_costs_one_poll_per_waiter(own_server: Server, lock_kind: str) -> None:
    """The subscription of 600 waiters is cut. Each of them polls about once, not 600 times."""
    factory = make_server_factory(lock_kind, own_server.port)
    lock, client = factory.make_lock("busy", ttl=30), own_server.make_client()

    def acquire_and_release() -> None:
        with lock.hold(wait=60):
            pass

    with hold_lock(lock) as lease:
        waiters = [run_in_thread(acquire_and_release) for _ in range(WAITER_COUNT)]
        eventually(lambda: client.zcard("lock:{busy}:places") == WAITER_COUNT, within=60)
        client.config_resetstat()
        client.client_kill_filter(_type="pubsub")
        lease.release()
    assert [waiter.exception(60) for waiter in waiters] == [None] * WAITER_COUNT
    assert count_commands(client) < MAX_COMMANDS_PER_WAITER * WAITER_COUNT
    factory.close()


@pytest.mark.parametrize(
    "options",
    [{"ttl": 0.3, "renew": False}, {"ttl": 0.3, "max_hold": 0.3}],
    ids=["ttl", "max_hold"],
)
def test_expired_lease_of_a_living_process_keeps_the_order(
    client: redis.Redis, start_worker: StartWorker, options: dict[str, Any]
) -> None:
    """A process lets its lease expire without a release. Its waiters keep their places.

    This process is A. Its waiters A1 to A3 came before the waiter of the worker B, and are served
    before B, although a third process, C, notices the expiry first.
    """
    name = "ends by itself"
    lock = RedisLock(client, name, ttl=30)
    expiring_lock = RedisLock(client, name, **options)
    served: list[str] = []
    b, c = start_worker(), start_worker()
    with hold_lock(lock) as lease:
        next_holder = start_waiter(expiring_lock)
        waiters_of_a = [
            start_recording_waiter(lock, f"A{number}", served) for number in range(1, 4)
        ]
        b.send("acquire", name=name, ttl=30, wait=30)
        wait_until_queued(lock, 5)  # next_holder, A1 to A3 and B
        lease.release()
        expired_lease = next_holder.result(5)  # never released
        eventually(lambda: expired_lease.lost)
        eventually(lambda: client.pttl("lock:{ends by itself}") == -2)  # no such key
        # C is the first to notice the expiry.
        assert c.run("acquire", name=name, ttl=30, wait=0) == "LockTimeout"
        for waiter in waiters_of_a:
            with suppress(TimeoutError):  # the assertion below shows which waiters are missing
                waiter.result(2)
        assert served == ["A1", "A2", "A3"]
        b.read_reply()
        assert b.run("release") == "released"


def test_waiters_of_a_paused_process_regain_their_places(
    client: redis.Redis, start_worker: StartWorker
) -> None:
    """A process with eight waiters is paused. Meanwhile the lock is given to a later waiter.

    After the pause the eight waiters are in the queue again, in their old order.
    """
    lock = RedisLock(client, "places back", ttl=1)
    worker = start_worker()
    with hold_lock(lock) as lease:
        lease.extend(300)  # the waiters sleep until this lease ends, or until they are woken
        worker.run("start_threads", name="places back", ttl=1, wait=60, count=8)
        wait_until_queued(lock, 8)
        waiters_of_worker = lock.inspect().waiters
        last_waiter = start_waiter(lock, wait=30)
        worker.pause()
        lease.release()
        # The release gave the lock to the first waiter of the paused process. When that lease has
        # expired, the poll of the last waiter makes the server remove the waiters of the process.
        last_lease = last_waiter.result(10)
    worker.resume()
    wait_until_queued(lock, 8)
    assert lock.inspect().waiters == waiters_of_worker
    last_lease.release()
    eventually(lambda: not lock.locked() and not lock.inspect().waiters)
