"""A wait that ends, or is interrupted by an exception, leaves no queue entry and no lock."""

from typing import Any

import pytest
import redis

from .. import LockTimeout, RedisLock, Release, client_resources, connection
from ..sans_io import acquisition, renewals
from ..sans_io.protocol import LEAVE, WireError
from ..testing.server import eventually
from .waiting import StartWorker, hold_lock, is_free, start_waiter, wait_until_queued


class Interrupted(BaseException):
    """Neither an Exception nor one of the other exceptions that Python defines."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit, Interrupted])
def test_exception_while_waiting_leaves_no_queue_entry(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The exception is raised while the waiter sleeps in the queue."""
    queues = []

    def interrupt(*_: object) -> None:
        queues.append(lock.inspect().waiters)
        raise error

    with hold_lock(lock):
        monkeypatch.setattr(client_resources, "_sleep", interrupt)
        with pytest.raises(error):
            lock.acquire(5)
        assert len(queues[0]) == 1
        assert lock.inspect().waiters == ()


def test_exception_after_the_grant_frees_the_lock(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release grants the lock to the waiter, which is interrupted before it knows that."""
    with hold_lock(lock) as lease:

        def interrupt(*_: object) -> None:
            lease.release()
            assert lock.inspect().owner not in (None, lease.token)
            raise KeyboardInterrupt

        monkeypatch.setattr(client_resources, "_sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(5)
    assert not lock.locked()


@pytest.mark.parametrize(
    ("release_moment", "is_acquired"),
    [("in the last sleep", True), ("before the last poll", True), ("after the last poll", False)],
)
def test_hand_over_at_the_end_of_the_wait_has_one_owner(
    client: redis.Redis,
    lock: RedisLock,
    monkeypatch: pytest.MonkeyPatch,
    release_moment: str,
    is_acquired: bool,
) -> None:
    """The script of the waiter's last poll also takes the waiter out of the queue.

    The holder's release comes before that poll, or after it: then the lock is free.
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
            client.delete(*lock.keys[1:3])  # as if the server had removed the waiter
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


def test_release_passes_over_a_waiter_whose_wait_has_ended(
    client: redis.Redis, lock: RedisLock, start_worker: StartWorker
) -> None:
    """The first waiter is paused until its wait has ended, so the second one gets the lock."""
    sleeper = start_worker()
    with hold_lock(lock) as lease:
        sleeper.send("acquire", name="tested", ttl=10, wait=0.5)
        wait_until_queued(lock, 1)
        sleeper.pause()
        next_waiter = start_waiter(lock)
        # Wait until the sleeper's wait of 0.5 s has ended on the server's clock. The lease's fence
        # is the time of its grant, in microseconds. The sleeper was queued within 1 s after that.
        eventually(lambda: _read_clock(client) > lease.fence / 1e6 + 1.5)  # type: ignore[operator]
    next_waiter.result(1).release()
    sleeper.resume()
    # The last poll of the sleeper may find the lock free.
    if sleeper.read_reply() != "LockTimeout":
        assert sleeper.run("release") == "released"
    assert not lock.locked()


def _read_clock(client: redis.Redis) -> float:
    """Return the time of the server's clock in seconds."""
    seconds, microseconds = client.time()
    return float(seconds + microseconds / 1e6)


def test_interrupted_waiter_returns_a_granted_lock(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that withdraws the waiter is lost, so the lock is granted to the waiter's token.

    That token is abandoned: its release is repeated in the background, here only after a minute. So
    it is the wake-up for this token that makes this process release the lock.
    """

    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(connection.Connections, "call", fail_once)
        raise Interrupted

    def fail_once(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise WireError(redis.ConnectionError("cut"), sent=True)

    class LateAbandonedToken(renewals.AbandonedToken):
        """A token whose release is repeated after a minute instead of at once."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.due += 60

    with pytest.MonkeyPatch.context() as patch, hold_lock(lock) as lease:
        patch.setattr(renewals, "AbandonedToken", LateAbandonedToken)
        monkeypatch.setattr(client_resources, "_sleep", interrupt)
        with pytest.raises(Interrupted):
            lock.acquire(20)
        assert len(lock.inspect().waiters) == 1  # the server still has the interrupted waiter
        next_waiter = start_waiter(lock)
        lease.release()
        next_waiter.result(10).release()
