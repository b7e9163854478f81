"""Tests of a waiter that gives up, because its wait ends or an exception interrupts it.

Afterwards the waiter is not in the queue, and its token does not hold the lock.
"""

from typing import Any

import pytest
import redis

from .. import LockTimeout, RedisLock, Release, client_resources, connection
from ..sans_io import acquisition, renewals
from ..sans_io.protocol import LEAVE, WireError
from ..testing.server import eventually
from .waiting import StartWorker, hold_lock, is_free, start_waiter, wait_until_queued


class Interrupted(BaseException):
    """A custom exception that `except Exception` does not catch."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit, Interrupted])
def test_exception_while_waiting_leaves_no_queue_entry(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The exception is raised while the waiter sleeps in the queue."""
    waiters_at_interrupt: list[str] = []

    def interrupt(*_: object) -> None:
        waiters_at_interrupt.extend(lock.inspect().waiters)
        raise error

    with hold_lock(lock):
        monkeypatch.setattr(client_resources, "_sleep", interrupt)
        with pytest.raises(error):
            lock.acquire(5)
        assert len(waiters_at_interrupt) == 1
        assert lock.inspect().waiters == ()


def test_exception_after_the_grant_frees_the_lock(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release gives the lock to a waiter. The waiter is interrupted before it notices.

    The lock is then free.
    """
    with hold_lock(lock) as lease:

        def interrupt(*_: object) -> None:
            lease.release()
            assert lock.inspect().owner not in (None, lease.token)  # it is the waiter's token
            raise KeyboardInterrupt

        monkeypatch.setattr(client_resources, "_sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(5)
    assert not lock.locked()


@pytest.mark.parametrize(
    ("release_moment", "is_acquired"),
    [("in the last sleep", True), ("before the last poll", True), ("after the last poll", False)],
)
def test_release_at_the_end_of_a_wait_leaves_one_owner(
    client: redis.Redis,
    lock: RedisLock,
    monkeypatch: pytest.MonkeyPatch,
    release_moment: str,
    is_acquired: bool,
) -> None:
    """The holder releases the lock at about the time when the wait of the only waiter ends.

    At that time the waiter polls once more, which also removes it from the queue. If the release
    comes before that poll, the waiter has the lock. If it comes after the poll, the lock is free.
    """
    request_lock = acquisition.Acquisition.request_lock

    def sleep_until_the_wait_ends(waiter: acquisition.Acquisition, *_: object) -> None:
        if release_moment == "in the last sleep":
            assert lease.release() is Release.RELEASED
            assert lock.inspect().owner == waiter.token.decode()
        waiter.ends_at = 0.0

    def request_around_the_release(waiter: acquisition.Acquisition, *arguments: Any) -> Any:
        is_last_poll = arguments == (LEAVE,)
        if is_last_poll and release_moment == "before the last poll":
            client.delete(*lock.keys[1:3])  # the queue; so the release does not find the waiter
            assert lease.release() is Release.RELEASED
        reply = yield from request_lock(waiter, *arguments)
        if is_last_poll and release_moment == "after the last poll":
            assert lease.release() is Release.RELEASED
        return reply

    lease = lock.acquire(1)
    monkeypatch.setattr(client_resources, "_sleep", sleep_until_the_wait_ends)
    monkeypatch.setattr(acquisition.Acquisition, "request_lock", request_around_the_release)
    if is_acquired:
        next_lease = lock.acquire(5)
        assert lock.inspect().owner == next_lease.token
        assert next_lease.release() is Release.RELEASED
    else:
        with pytest.raises(LockTimeout):
            lock.acquire(5)
    assert is_free(lock)


def test_release_skips_a_waiter_whose_wait_has_ended(
    client: redis.Redis, lock: RedisLock, start_worker: StartWorker
) -> None:
    """The first waiter is a paused process. When its wait is over, the second one gets the lock."""
    waiting_worker = start_worker()
    with hold_lock(lock) as lease:
        waiting_worker.send("acquire", name=lock.name, ttl=10, wait=0.5)
        wait_until_queued(lock, 1)
        waiting_worker.pause()
        next_waiter = start_waiter(lock)
        # Wait until the wait of the paused waiter has ended on the server's clock. The fence is the
        # time at which the lease was granted, in microseconds. Within 1 s after that the waiter was
        # queued, and its wait is 0.5 s.
        eventually(lambda: _read_clock(client) > lease.fence / 1e6 + 1.5)  # type: ignore[operator]
    next_waiter.result(1).release()
    waiting_worker.resume()
    # With its last poll the resumed waiter may acquire the lock, which is free now.
    if waiting_worker.read_reply() != "LockTimeout":
        assert waiting_worker.run("release") == "released"
    assert not lock.locked()


def _read_clock(client: redis.Redis) -> float:
    """Return the time of the server's clock in seconds."""
    seconds, microseconds = client.time()
    return float(seconds + microseconds / 1e6)


def test_interrupted_waiter_releases_a_granted_lock(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiter is interrupted, but stays in the queue, because its last command is lost.

    The holder then releases the lock, and the server grants it to the waiter that is still in the
    queue. The process of this waiter receives the wake-up, finds no waiter for it, and releases
    the lock at once. (The watchdog would also release the lock, but in this test only after a
    minute.)
    """

    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(connection.Connections, "call", lose_command_once)
        raise Interrupted

    def lose_command_once(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise WireError(redis.ConnectionError("cut"), sent=True)

    class LateAbandonedToken(renewals.AbandonedToken):
        """A token that is released in the background after a minute instead of at once."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.due += 60

    with pytest.MonkeyPatch.context() as patch, hold_lock(lock) as lease:
        patch.setattr(renewals, "AbandonedToken", LateAbandonedToken)
        monkeypatch.setattr(client_resources, "_sleep", interrupt)
        with pytest.raises(Interrupted):
            lock.acquire(20)
        assert len(lock.inspect().waiters) == 1  # the interrupted waiter is still queued
        next_waiter = start_waiter(lock)
        lease.release()
        next_waiter.result(10).release()
