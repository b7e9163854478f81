"""The order in which waiters get the lock, when some are dead, paused or cut off, or many wait.

Each worker is a separate process. The waiters in threads share the process of the test.
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
    queue_turn,
    run_in_thread,
    start_waiter,
    wait_until_queued,
)
from .worker import Worker


def test_monitoring_subscription_revives_no_dead_waiter(
    client: redis.Redis, start_worker: StartWorker
) -> None:
    """A tool that subscribes to all channels does not make a dead waiter's channel look alive."""
    lock = RedisLock(client, "monitored", ttl=2)
    workers = [start_worker() for _ in range(3)]
    pubsub: Any = client.pubsub
    with pubsub() as monitor:
        monitor.psubscribe("*")
        assert monitor.get_message(timeout=5)  # it has subscribed
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
    assert time.monotonic() - released_at < 0.5  # no dead waiter got the lock for its ttl


def test_waiters_keep_their_places_if_the_subscription_breaks(
    client: redis.Redis, lock: RedisLock, start_worker: StartWorker
) -> None:
    """Workers overtake our waiters while these cannot be woken.

    Once our waiters can be woken again, a newcomer queues behind them.
    """
    served: list[str] = []
    first_worker, second_worker, newcomer = start_worker(), start_worker(), start_worker()

    def queue_up(worker: Worker) -> None:
        waiters = len(lock.inspect().waiters)
        worker.send("acquire", name="tested", ttl=30, wait=30)
        wait_until_queued(lock, waiters + 1)

    with hold_lock(lock) as lease:
        our_waiters = [queue_turn(lock, f"our waiter {number}", served) for number in range(3)]
        queue_up(first_worker)
        queue_up(second_worker)
        with break_subscription(client, lock):
            lease.release()
            first_worker.read_reply()
            assert first_worker.run("release") == "released"
            second_worker.read_reply()
        wait_until_queued(lock, 3)  # our waiters are back
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
    """Cut the subscription of this process's waiters, and prevent a new one during the block."""
    our_wakeups = lock._wakeups
    may_listen = threading.Event()
    listen = type(our_wakeups).listen

    def listen_late(wakeups: Any, until: float) -> None:
        if wakeups is our_wakeups and not wakeups.waiters.is_listening:
            may_listen.wait(5)
        listen(wakeups, until)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(our_wakeups), "listen", listen_late)
        channel = our_wakeups.waiters.channel
        port = our_wakeups._connection._sock.getsockname()[1]
        addresses = [connection["addr"] for connection in client.client_list(_type="pubsub")]
        client.client_kill_filter(
            addr=next(address for address in addresses if address.endswith(f":{port}"))
        )
        eventually(lambda: client.pubsub_numsub(channel)[0][1] == 0)
        yield
        may_listen.set()


def test_unadopted_lease_costs_no_waiter_its_place(server: Server) -> None:
    """A process that hands over its lease is not taken for paused if the lease ends unadopted.

    A hands the lease over. When it has ended, the next holder is A's waiter, which came before B's.
    Two clients of this process stand for the processes A and B.
    """
    lock_of_a, lock_of_b = (RedisLock(server.make_client(), "places", ttl=1) for _ in range(2))
    first_lease = lock_of_b.acquire(1)
    waiter_of_a = start_waiter(lock_of_a)
    first_lease.release()  # the server records that it handed the lock to A
    lease_of_a = waiter_of_a.result(5)
    served: list[str] = []
    turns = [queue_turn(lock_of_a, "A", served), queue_turn(lock_of_b, "B", served)]
    lease_of_a.hand_over(within=0.3)
    for lock_waiters in lock_of_a._wakeups.waiters._lock_waiters_by_key.values():
        lock_waiters.lease_ends_at += 0.5  # so that B polls first when the lease has ended
    for turn in turns:
        turn.result(10)
    assert served == ["A", "B"]


def test_forced_release_of_a_free_lock_keeps_the_paused_process_marked(
    client: redis.Redis, start_worker: StartWorker
) -> None:
    """The lock was handed to a paused process with further waiters, and its lease has ended.

    The mark, the field "*" described in hand_over.lua, tells the server not to hand the lock to
    another waiter of that process.
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
#: The server runs 29 commands for each waiter, its two scripts and the commands in them, and some
#: more if the waiter polls again. A bound on the time would depend on the load of the machine.
MAX_COMMANDS_PER_WAITER = 40


def count_commands(client: redis.Redis) -> int:
    """Return the number of commands that the server has run, those in scripts included."""
    stats: Any = client.info("commandstats")
    return sum(command_stats["calls"] for command_stats in stats.values())


@pytest.mark.parametrize("lock_kind", ["threads", "asyncio"])
def test_cut_subscription_costs_one_poll_per_waiter(own_server: Server, lock_kind: str) -> None:
    """The number of commands does not grow with the square of the number of waiters."""
    factory = make_server_factory(lock_kind, own_server.port)
    lock, client = factory.make_lock("crowd", ttl=30), own_server.make_client()

    def take_turn() -> None:
        with lock.hold(wait=60):
            pass

    with hold_lock(lock) as lease:
        turns = [run_in_thread(take_turn) for _ in range(WAITER_COUNT)]
        eventually(lambda: client.zcard("lock:{crowd}:places") == WAITER_COUNT, within=60)
        client.config_resetstat()
        client.client_kill_filter(_type="pubsub")
        lease.release()
    assert [turn.exception(60) for turn in turns] == [None] * WAITER_COUNT
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
    """A holder in this process, A, lets its lease expire. Its waiters A1 to A3 queued before B."""
    name = "ends by itself"
    lock = RedisLock(client, name, ttl=30)
    expiring_lock = RedisLock(client, name, **options)
    served: list[str] = []
    b, c = start_worker(), start_worker()
    with hold_lock(lock) as lease:
        next_holder = start_waiter(expiring_lock)
        turns = [queue_turn(lock, f"A{number}", served) for number in range(1, 4)]
        b.send("acquire", name=name, ttl=30, wait=30)
        wait_until_queued(lock, 5)
        lease.release()
        expired_lease = next_holder.result(5)  # never released
        eventually(lambda: expired_lease.lost)
        eventually(lambda: client.pttl("lock:{ends by itself}") == -2)  # no such key
        # C is the first to notice the expiry.
        assert c.run("acquire", name=name, ttl=30, wait=0) == "LockTimeout"
        for turn in turns:
            with suppress(TimeoutError):  # the assertion below tells which turns are missing
                turn.result(2)
        assert served == ["A1", "A2", "A3"]
        b.read_reply()
        assert b.run("release") == "released"


def test_waiters_of_a_paused_process_regain_their_places(
    client: redis.Redis, start_worker: StartWorker
) -> None:
    """After the pause all eight queue in their old order, although a later waiter overtook them."""
    lock = RedisLock(client, "places back", ttl=1)
    worker = start_worker()
    with hold_lock(lock) as lease:
        lease.extend(300)  # the waiters sleep for as long as this lease may last
        worker.run("start_threads", name="places back", ttl=1, wait=60, count=8)
        wait_until_queued(lock, 8)
        waiters_of_worker = lock.inspect().waiters
        last_waiter = start_waiter(lock, wait=30)
        worker.pause()
        lease.release()
        # The last waiter polls once per ttl, and then the server finds that all others are silent.
        last_lease = last_waiter.result(10)
    worker.resume()
    wait_until_queued(lock, 8)
    assert lock.inspect().waiters == waiters_of_worker
    last_lease.release()
    eventually(lambda: not lock.locked() and not lock.inspect().waiters)
