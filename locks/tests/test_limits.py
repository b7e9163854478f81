"""Tests of leaks, of the lifetime of a fence, of decorators, and of suspended machines."""

import gc
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest
import redis
import redis.asyncio

from .. import LockBackendError, LockLost, RedisLock, clock
from .. import lease as lease_module
from ..testing.server import Server, eventually, find_free_port
from .waiting import LOCKS_PACKAGE, hold_lock, run_program, start_waiter


def test_failed_acquires_leak_no_memory() -> None:
    """No server listens on the port of the lock's client."""
    lock = RedisLock(redis.Redis(port=find_free_port()), "unreachable", ttl=10)

    def count_blocks_after_failures(failures: int) -> int:
        """Let this many acquisitions fail, and return the number of allocated memory blocks."""
        for _ in range(failures):
            with pytest.raises(LockBackendError):
                lock.acquire(0)
        gc.collect()
        return sys.getallocatedblocks()

    blocks_before = count_blocks_after_failures(200)  # these failures also fill the caches
    # A leak of one block for each failure would add 3000 blocks.
    assert count_blocks_after_failures(3000) - blocks_before < 1500


def test_short_lived_clients_leave_no_thread_or_connection(server: Server) -> None:
    """Thirty clients are created, used by a holder and a waiter, and garbage-collected."""
    admin = server.make_client()
    threads_before = threading.active_count()
    connections_before = len(admin.client_list())
    for number in range(30):
        client = redis.Redis(port=server.port, db=number % 15, client_name=f"brief-{number}")
        lock = RedisLock(client, "brief", ttl=0.3)
        with hold_lock(lock):
            waiter = start_waiter(lock)
        waiter.result(5).release()
        client.close()
        del client, lock, waiter
    gc.collect()
    # A leak would leave 30 threads or connections. A few may belong to other tests.
    eventually(lambda: threading.active_count() <= threads_before + 1, within=10)
    eventually(lambda: len(admin.client_list()) <= connections_before + 2)


def test_lock_decorates_plain_functions_only(lock: RedisLock) -> None:
    """A function that returns before its body has run is refused, such as a generator function."""

    @lock.hold(wait=1)
    def read_owner() -> str | None:
        return lock.inspect().owner

    owners = [read_owner(), read_owner()]
    assert None not in owners
    assert owners[0] != owners[1]  # each call has its own lease
    assert not lock.locked()

    async def coroutine() -> None: ...
    def generator() -> Iterator[int]:
        yield 1

    async def stream() -> AsyncIterator[int]:
        yield 1

    class AsyncCallable:
        async def __call__(self) -> None: ...

    for function in (coroutine, generator, stream, partial(coroutine), AsyncCallable()):
        with pytest.raises(TypeError, match=r"use `with lock\.hold\(\.\.\.\)` inside it"):
            lock.hold(wait=1)(function)
    assert not lock.locked()


def test_lifetime_of_the_fence_can_be_chosen(client: redis.Redis) -> None:
    """The server remembers a fence for `fence_ttl` seconds, or by default for a week."""
    with hold_lock(RedisLock(client, "brief fence", ttl=10, fence_ttl=3600)):
        waiter = start_waiter(RedisLock(client, "brief fence", ttl=10, fence_ttl=3600))
    waiter.result(5).release()
    assert 3000 < client.ttl("lock:{brief fence}:fence") <= 3600
    with hold_lock(RedisLock(client, "week", ttl=10)):
        pass
    assert 6 * 86400 < client.ttl("lock:{week}:fence") <= 7 * 86400
    with pytest.raises(ValueError, match="at least the ttl"):
        RedisLock(client, "x", ttl=10, fence_ttl=5)


def test_error_has_a_message_without_docstrings() -> None:
    """`python -OO` removes the docstrings, but not the message of an error."""
    program = f"from {LOCKS_PACKAGE} import LockTimeout; print(LockTimeout(name='x'))"
    assert run_program(sys.executable, "-OO", "-c", program).startswith("x: The lock was not free")


def test_suspended_machine_trusts_no_earlier_lease(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is suspended for 60 s, and the ttl is 10 s. The lease is lost afterwards."""
    lease = RedisLock(client, "suspended", ttl=10, renew=False).acquire(1)
    monkeypatch.setattr(lease_module, "now", lambda: clock.now() + 60)
    assert lease.lost
    with pytest.raises(LockLost):
        lease.check()
    monkeypatch.undo()
    lease.release()


def test_clock_runs_on_while_the_machine_is_suspended() -> None:
    """The clock of the leases is CLOCK_BOOTTIME. time.monotonic() would stop meanwhile."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system has no CLOCK_BOOTTIME")
    assert isinstance(clock.now, partial)
    assert (clock.now.func, clock.now.args) == (time.clock_gettime, (time.CLOCK_BOOTTIME,))
    earlier = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert earlier <= clock.now() <= time.clock_gettime(time.CLOCK_BOOTTIME)
