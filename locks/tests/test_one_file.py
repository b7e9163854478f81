"""Tests of what OneFileLock's docstrings say, on a real server."""

import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .. import RedisLock, one_file
from ..one_file import Lease, LockLost, LockTimeout, OneFileLock
from ..testing.server import LoopbackProxy, Server, eventually
from .waiting import ANY_COMMAND, LOCKS_PACKAGE, run_in_thread, run_program

MakeLock = Callable[..., OneFileLock]


@pytest.fixture
def make_lock(client: redis.Redis) -> MakeLock:
    """A function that makes a lock, by default with the name "x" and a ttl of 10 s."""
    return lambda name="x", **options: OneFileLock(client, name, **{"ttl": 10, **options})


def test_public_names_are_the_documented_ones(make_lock: MakeLock) -> None:
    """There is no acquire(), so code written for redis-py's Lock fails with an AttributeError."""
    public_names = {name for name in dir(make_lock()) if not name.startswith("_")}
    assert public_names == {"hold", "max_hold", "name", "ttl"}


def test_lock_has_one_holder_and_fences_rise(make_lock: MakeLock) -> None:
    """Twenty threads use the lock. Each fence is higher than the one before."""
    lock = make_lock()
    block_guard = threading.Lock()  # held in each `with` block, so a second holder cannot take it
    fences = []

    def hold_and_record() -> None:
        with lock.hold(wait=30) as lease:
            assert block_guard.acquire(blocking=False)
            fences.append(lease.fence)
            lease.check()
            block_guard.release()

    for future in [run_in_thread(hold_and_record) for _ in range(20)]:
        future.result(30)
    assert fences == sorted(set(fences))


def test_wait_ends_on_time_and_leaves_the_holder_alone(
    make_lock: MakeLock, client: redis.Redis
) -> None:
    """Another holder has the lock. A waiter gives up, and the holder still has the lock."""
    lock = make_lock()
    with lock.hold(wait=0) as lease:
        for wait in (0, 0.2):
            started = time.monotonic()
            with pytest.raises(LockTimeout, match="not free"), lock.hold(wait=wait):
                pass
            assert wait <= time.monotonic() - started < wait + 0.5
        assert client.get("lock:{x}") == lease.token.encode()
    assert lease.outcome == "released"
    assert not client.exists("lock:{x}")


def test_polling_interval_doubles_up_to_50_ms(
    make_lock: MakeLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses between the polls of a waiter are recorded, and the waiter does not sleep."""
    lock = make_lock()
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", lambda seconds: pauses.append(seconds))
    monkeypatch.setattr(random, "uniform", lambda *_: 1.0)  # no jitter
    with lock.hold(wait=0), pytest.raises(LockTimeout), lock.hold(wait=0.2):
        pass
    assert pauses[:7] == [0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]


def test_lease_is_renewed_until_max_hold(make_lock: MakeLock, client: redis.Redis) -> None:
    """The ttl is 0.3 s. The lock is held for 0.8 s, and then expires."""
    with make_lock(ttl=0.3, max_hold=0.8).hold(wait=1) as lease:
        while lease.held_seconds < 0.7:
            assert client.get("lock:{x}") == lease.token.encode()
            time.sleep(0.01)
        eventually(lambda: not client.exists("lock:{x}"))
        with pytest.raises(LockLost):
            lease.check()
    assert lease.outcome == "expired"


def test_stopped_holder_is_replaced_after_the_ttl(
    make_lock: MakeLock, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next holder has a higher fence. The late release of the stopped one has no effect."""
    stopped_lock, next_lock = make_lock(ttl=0.2), make_lock()
    monkeypatch.setattr(one_file, "_renew", lambda *_: None)  # as if the process were stopped
    with ExitStack() as stack:
        with stopped_lock.hold(wait=1) as stopped_lease:
            next_lease = stack.enter_context(next_lock.hold(wait=5))
            assert next_lease.fence > stopped_lease.fence
            with pytest.raises(LockLost):
                stopped_lease.check()
        assert stopped_lease.outcome == "expired"
        assert client.get("lock:{x}") == next_lease.token.encode()
        next_lease.check()


def test_stolen_lock_is_noticed_by_the_next_renewal(
    make_lock: MakeLock, client: redis.Redis
) -> None:
    """Another program overwrites the token of the holder. The release changes nothing."""
    with make_lock(ttl=0.6).hold(wait=1) as lease:
        client.set("lock:{x}", "another")
        eventually(lambda: is_lost(lease), within=2)
    assert lease.outcome == "expired"
    assert client.get("lock:{x}") == b"another"
    client.delete("lock:{x}")


def is_lost(lease: Lease) -> bool:
    try:
        lease.check()
    except LockLost:
        return True
    return False


def test_lost_reply_leaves_no_lock(proxy: LoopbackProxy) -> None:
    """The reply to an acquisition is lost, and later the reply to a release."""
    client = make_client_without_retries(proxy)
    lock = OneFileLock(client, "x", ttl=30)
    with lock.hold(wait=1):
        pass  # the server has the scripts from here on
    proxy.lose_reply(b"EVALSHA")
    with pytest.raises(redis.ConnectionError), lock.hold(wait=1):
        pass
    eventually(lambda: not client.exists("lock:{x}"))
    with lock.hold(wait=1) as lease:
        proxy.lose_reply(b"EVALSHA")
    assert lease.outcome == "unknown"  # the release raised no exception
    assert not client.exists("lock:{x}")


def test_short_outage_does_not_lose_the_lease(proxy: LoopbackProxy) -> None:
    """The connection is cut and one renewal is lost. The next renewal still comes in time."""
    with OneFileLock(make_client_without_retries(proxy), "x", ttl=0.9).hold(wait=1) as lease:
        proxy.cut()
        proxy.lose_request(ANY_COMMAND)
        time.sleep(1.2)  # longer than the ttl
        lease.check()
    assert lease.outcome == "released"


def make_client_without_retries(proxy: LoopbackProxy) -> redis.Redis:
    return redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0))


def test_exception_of_the_block_is_kept_and_the_lock_freed(
    make_lock: MakeLock, client: redis.Redis
) -> None:
    """The caller gets the exception that the block raised."""
    with pytest.raises(KeyError), make_lock().hold(wait=1):
        raise KeyError
    assert not client.exists("lock:{x}")


def test_fence_ahead_of_the_server_clock_does_not_fall(
    make_lock: MakeLock, client: redis.Redis
) -> None:
    """The last fence is an hour ahead of the clock. The next fences are 1 and 2 higher.

    Usually a fence is the time of the server's clock.
    """
    last_fence = int((time.time() + 3600) * 1e6)  # microseconds
    client.set("lock:{x}:fence", last_fence, ex=100)
    for number in (1, 2):
        with make_lock().hold(wait=1) as lease:
            assert lease.fence == last_fence + number


@pytest.mark.parametrize("name", ["x", "50% off", "user:{42}", "a}b"])
def test_redis_lock_and_one_file_lock_exclude_each_other(
    make_lock: MakeLock, client: redis.Redis, name: str
) -> None:
    """An application can switch from one to the other while both are deployed.

    The fence of a RedisLock is higher than the last fence of the OneFileLock.
    """
    redis_lock = RedisLock(client, name, ttl=10)
    with make_lock(name).hold(wait=1) as lease:
        assert redis_lock.try_acquire() is None
    with redis_lock.hold(wait=1) as next_lease:
        assert (next_lease.fence or 0) > lease.fence
        with pytest.raises(LockTimeout), make_lock(name).hold(wait=0):
            pass


def test_forked_child_does_not_release_its_parents_lock(server: Server) -> None:
    """A child is forked in the block. The child's exit from the block releases nothing."""
    program = (
        "import os, redis\n"
        f"from {LOCKS_PACKAGE} import one_file\n"
        f"client = redis.Redis(port={server.port})\n"
        "with one_file.OneFileLock(client, 'forked', ttl=10).hold(wait=1) as lease:\n"
        "    child = os.fork()\n"
        "    if child:\n"
        "        os.waitpid(child, 0)\n"
        "        print(client.get('lock:{forked}') == lease.token.encode())\n"
        "if child: print(lease.outcome)"
    )
    # Python 3.12 warns of a fork with threads.
    assert run_program(sys.executable, "-W", "ignore", "-c", program) == "True\nreleased\n"


@pytest.mark.parametrize("options", [{"ttl": 0}, {"ttl": float("inf")}, {"max_hold": 5}])
def test_invalid_times_are_refused(make_lock: MakeLock, options: dict[str, Any]) -> None:
    """A ttl must be positive and finite. max_hold must not be shorter than the ttl, here 10 s."""
    with pytest.raises(ValueError, match="give a name, seconds"):
        make_lock(**options)


def test_file_is_short_and_self_contained(tmp_path: Path, server: Server) -> None:
    """A copy of one_file.py works without the rest of the package."""
    text = Path(str(one_file.__file__)).read_text()
    assert len(text.splitlines()) <= 220
    (tmp_path / "copied.py").write_text(text)
    program = (
        "import redis, copied\n"
        f"lock = copied.OneFileLock(redis.Redis(port={server.port}), 'alone', ttl=5)\n"
        "with lock.hold(wait=1) as lease: lease.check()\n"
        "print(lease.outcome)"
    )
    assert run_program(sys.executable, "-c", program, folder=tmp_path) == "released\n"
