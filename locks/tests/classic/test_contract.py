"""What all locks of the articles have in common, flawed or not."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...errors import LockBackendError, LockTimeout
from ...lease import Release
from ...testing.server import free_port
from .conftest import Make
from .kinds import KINDS, Backends

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_only_one_thread_has_it_and_it_is_free_after_the_release(kind: str, make: Make) -> None:
    lock, rival = make(kind), make(kind)
    with ThreadPoolExecutor(1) as other, lock.hold(1) as lease:
        assert other.submit(rival.try_acquire).result() is None
        lease.check()
    assert lease.outcome is Release.RELEASED
    with ThreadPoolExecutor(1) as other:
        taken = other.submit(rival.acquire, 1).result()
        assert other.submit(taken.release).result() is Release.RELEASED


@every_kind
def test_a_wait_that_is_over_ends_in_a_timeout_that_names_the_lock(kind: str, make: Make) -> None:
    lock = make(kind)
    with lock.hold(1), ThreadPoolExecutor(1) as other:
        started = time.monotonic()
        with pytest.raises(LockTimeout, match=lock.name):
            other.submit(lock.acquire, 0.1).result()
        assert 0.1 <= time.monotonic() - started < 1.0


@every_kind
def test_who_waits_has_it_after_the_release_and_knows_how_long_it_took(
    kind: str, make: Make
) -> None:
    lock = make(kind)
    with ThreadPoolExecutor(1) as other:
        with lock.hold(1):
            waiting = other.submit(lock.acquire, 5)
            assert not waiting.done()
        lease = waiting.result()
        assert 0.0 < lease.waited_seconds < 5.0
        other.submit(lease.release).result()


@every_kind
def test_no_update_is_lost_when_many_read_and_write_back(kind: str, make: Make) -> None:
    stock = 30
    start = threading.Barrier(6)

    def buy() -> None:
        nonlocal stock
        start.wait()
        for _ in range(5):
            with make(kind).hold(20):
                seen = stock
                time.sleep(0)  # let somebody else run between the read and the write
                stock = seen - 1

    with ThreadPoolExecutor(6) as buyers:
        for bought in [buyers.submit(buy) for _ in range(6)]:
            bought.result()
    assert stock == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("process", "zookeeper")])
def test_a_silent_server_is_an_error_and_never_a_lock(kind: str) -> None:
    nobody = Backends(free_port(), [free_port() for _ in range(5)], free_port())
    with pytest.raises(LockBackendError):
        KINDS[kind](nobody, "silent", 1.0).acquire(1)
    nobody.close()
