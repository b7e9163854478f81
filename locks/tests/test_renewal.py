"""Tests that a lease is renewed although another lease has a short ttl or a silent server.

Also tests of on_lost, the callback for a lost lease.
"""

import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from .. import Lease, LossReason, RedisLock, Release, hooks, watchdog
from ..sans_io.protocol import Call
from ..testing.server import LoopbackProxy, Server, eventually
from .waiting import hold_lock, start_waiter


def test_short_ttl_does_not_shorten_the_timeouts_of_others(
    server: Server, client: redis.Redis, proxy: LoopbackProxy
) -> None:
    """The timeout of a renewal is a sixth of the ttl: 0.01 s for the first locks in this test.

    After their use each reply takes 0.012 s, which is longer than that timeout. A lease with a ttl
    of 1.2 s is renewed nevertheless, because its timeout is 0.2 s.
    """
    RedisLock(client, "brief", ttl=0.06).acquire(1).release()
    proxied_client = server.make_client(port=proxy.port)
    RedisLock(proxied_client, "also brief", ttl=0.06).acquire(1).release()
    proxy.delay(0.012)
    lease = RedisLock(proxied_client, "long", ttl=1.2).acquire(1)
    assert not lease.lost_event.wait(1.5)
    assert lease.release() is Release.RELEASED


def test_leases_with_different_ttls_have_separate_timeouts(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout of a renewal is a sixth of the ttl of its lease."""
    timeouts_by_ttl: dict[int, float] = {}

    def record_timeout(_: object, calls: Sequence[Call], timeout: float) -> list[int]:
        for _script, _keys, (_token, ttl_ms, *_) in calls:
            assert isinstance(ttl_ms, int)
            timeouts_by_ttl[ttl_ms] = timeout
        return [1] * len(calls)

    monkeypatch.setattr(watchdog.Watchdog, "_run_batch", record_timeout)
    short_lease = RedisLock(client, "short", ttl=0.3).acquire(1)
    long_lease = RedisLock(client, "long", ttl=1.2).acquire(1)
    eventually(lambda: {300, 1200} <= set(timeouts_by_ttl))
    assert timeouts_by_ttl[300] <= 0.051  # a sixth of the ttl of 0.3 s
    # A sixth of the ttl of 1.2 s. The next deadline of the other lease may shorten the timeout.
    assert 0.1 < timeouts_by_ttl[1200] <= 0.201
    short_lease.release()
    long_lease.release()


def test_silent_servers_lose_no_lease_of_a_healthy_server(
    server: Server, client: redis.Redis
) -> None:
    """Six servers do not reply to renewals. The lease on a seventh server is renewed."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(LoopbackProxy(server.port)) for _ in range(6)]
        proxied_clients = [
            server.make_client(port=proxy.port, socket_timeout=1) for proxy in proxies
        ]
        silent_leases = [
            RedisLock(proxied_client, f"silent {n}", ttl=2).acquire(1)
            for n, proxied_client in enumerate(proxied_clients)
        ]
        lease = RedisLock(client, "healthy", ttl=0.9).acquire(1)
        for proxy in proxies:
            proxy.black_hole()
        assert not lease.lost_event.wait(2.5)
        assert lease.release() is Release.RELEASED
        assert [silent_lease.loss for silent_lease in silent_leases] == [LossReason.EXPIRED] * 6


class BrokenConnection(redis.Connection):
    """A connection class that raises an unexpected exception while `is_broken` is set."""

    is_broken = False

    def connect(self) -> None:
        if BrokenConnection.is_broken:
            raise LookupError("a bug in a connection class")
        super().connect()

    def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        if BrokenConnection.is_broken:
            raise LookupError("a bug in a connection class")
        super().send_packed_command(*args, **kwargs)


def test_exception_in_a_renewal_affects_no_other_client(
    server: Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connections of one client raise LookupError. Leases of other clients are renewed."""
    pool = redis.ConnectionPool(connection_class=BrokenConnection, port=server.port)
    broken_lease = RedisLock(redis.Redis.from_pool(pool), "broken", ttl=0.9).acquire(1)
    lease = RedisLock(client, "healthy", ttl=0.9).acquire(1)
    monkeypatch.setattr(BrokenConnection, "is_broken", True)
    assert broken_lease.lost_event.wait(3)
    assert not lease.lost_event.wait(1)
    assert lease.release() is Release.RELEASED
    with pytest.raises(LookupError):
        broken_lease.release()
    assert broken_lease.outcome is Release.UNKNOWN


def test_many_lost_leases_call_on_lost_in_few_threads(client: redis.Redis) -> None:
    """200 leases are lost at the same time. The callbacks wait until the threads are counted."""
    lease_count = 200
    threads_are_counted = threading.Event()
    reported_leases = []

    def on_lost(lease: Lease, _: LossReason) -> None:
        threads_are_counted.wait(5)
        reported_leases.append(lease)

    lock = RedisLock(client, "many losses", ttl=10, on_lost=on_lost)
    leases = []
    for _ in range(lease_count):
        leases.append(lock.acquire(1))
        client.delete("lock:{many losses}")
    threads_before = threading.active_count()
    for lease in leases:
        lease.mark_lost(LossReason.GONE)
    # The callbacks run in 8 threads at most. Two more threads may belong to other tests.
    assert threading.active_count() <= threads_before + 8 + 2
    threads_are_counted.set()
    eventually(lambda: len(reported_leases) == lease_count)


def test_lease_works_without_a_watchdog_thread(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No thread can be started, as when the interpreter ends. The lease is not renewed.

    on_lost is called in the thread that notices the loss.
    """

    def refuse_to_start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    losses: list[LossReason] = []
    lock = RedisLock(
        server.make_client(), "late", ttl=5, on_lost=lambda _, reason: losses.append(reason)
    )
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse_to_start)
        lease = lock.acquire(1)
        lease.check()
        assert "no thread" in caplog.text
        lease.mark_lost(LossReason.GONE)
        assert losses == [LossReason.GONE]
        lease.release()
    assert not lock.locked()


def test_callback_that_exits_does_not_end_its_thread(
    client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """`on_lost` calls sys.exit(). The thread that called it goes on, and serves later losses.

    on_lost is called once for each lost lease, although there are more losses than threads that
    call on_lost (MAX_CALLBACK_THREADS).
    """
    lost_names: list[str] = []
    loss_count = hooks.MAX_CALLBACK_THREADS + 2

    def on_lost(lease: Lease, _: LossReason) -> None:
        lost_names.append(lease.name)
        sys.exit(1)

    def lose_lease(name: str) -> None:
        with hold_lock(RedisLock(client, name, ttl=10, on_lost=on_lost)) as lease:
            lease.mark_lost(LossReason.GONE)
            lease.mark_lost(LossReason.TAKEN)
            eventually(lambda: name in lost_names)

    for number in range(loss_count):
        lose_lease(f"exits {number}")
    eventually(lambda: caplog.text.count("SystemExit") == loss_count)
    assert len(lost_names) == loss_count


def test_full_server_still_renews_extends_and_grants(own_server: Server) -> None:
    """The server has reached maxmemory. Renewals, extensions and grants need no more memory."""
    client = own_server.make_client()
    lock = RedisLock(client, "full", ttl=2)
    with hold_lock(lock) as lease:
        waiter = start_waiter(lock)
        client.config_set("maxmemory", 1)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.set("x", "x")
        lease.extend(2)
        first_deadline = lease.deadline
        eventually(lambda: lease.deadline > first_deadline)
    assert waiter.result(1).release() is Release.RELEASED
    client.config_set("maxmemory", 0)
