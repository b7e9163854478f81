"""An exception in the wait, or its end, leaves no queue entry and no lock."""

from typing import Any

import pytest
import redis

from .. import LockTimeout, RedisLock, Release, client_resources, connection
from ..sans_io import acquisition, renewals
from ..sans_io.protocol import LEAVE, WireError
from ..testing.server import eventually
from .waiting import StartWorker, held, is_free, start_waiter, wait_until_queued


class Interrupted(BaseException):
    """Replaces KeyboardInterrupt in a thread that is not the main one."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit, Interrupted])
def test_exception_while_waiting_leaves_no_queue_entry(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    queues = []

    def interrupt(*_: object) -> None:
        queues.append(lock.inspect().waiters)
        raise error

    with held(lock):
        monkeypatch.setattr(client_resources, "_sleep", interrupt)
        with pytest.raises(error):
            lock.acquire(5)
        assert len(queues[0]) == 1
        assert lock.inspect().waiters == ()


def test_exception_after_the_grant_frees_the_lock(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(lock) as lease:

        def interrupt(*_: object) -> None:
            lease.release()
            assert lock.inspect().owner not in (None, lease.token)
            raise KeyboardInterrupt

        monkeypatch.setattr(client_resources, "_sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(5)
    assert not lock.locked()


@pytest.mark.parametrize(
    ("released", "is_acquired"),
    [("while it is queued", True), ("before its last poll", True), ("after its last poll", False)],
)
def test_hand_over_at_the_end_of_the_wait_has_one_owner(
    client: redis.Redis,
    lock: RedisLock,
    monkeypatch: pytest.MonkeyPatch,
    released: str,
    is_acquired: bool,
) -> None:
    """The waiter's last poll also takes it out of the queue, in the same step."""
    ask = acquisition.Acquisition.ask

    def last_sleep(waiter: acquisition.Acquisition, *_: object) -> None:
        if released == "while it is queued":
            assert lease.release() is Release.RELEASED
            assert lock.inspect().owner == waiter.token.decode()
        waiter.end = 0.0

    def last_poll(waiter: acquisition.Acquisition, *arguments: Any) -> Any:
        if arguments == (LEAVE,) and released == "before its last poll":
            client.delete(*lock.keys[1:3])  # as if the server had dropped the waiter
            assert lease.release() is Release.RELEASED
        answer = yield from ask(waiter, *arguments)
        if arguments == (LEAVE,) and released == "after its last poll":
            assert lease.release() is Release.RELEASED
        return answer

    lease = lock.acquire(1)
    monkeypatch.setattr(client_resources, "_sleep", last_sleep)
    monkeypatch.setattr(acquisition.Acquisition, "ask", last_poll)
    if is_acquired:
        lease_of_waiter = lock.acquire(5)
        assert lock.inspect().owner == lease_of_waiter.token
        assert lease_of_waiter.release() is Release.RELEASED
    else:
        with pytest.raises(LockTimeout):
            lock.acquire(5)
    assert is_free(lock)


def test_release_passes_over_a_waiter_whose_wait_has_ended(
    client: redis.Redis, lock: RedisLock, start_worker: StartWorker
) -> None:
    sleeper = start_worker()
    with held(lock) as lease:
        sleeper.send("acquire", name="tested", ttl=10, wait=0.5)
        wait_until_queued(lock, 1)
        sleeper.pause()
        next_waiter = start_waiter(lock)
        # A fence is the server's time at the grant, in microseconds. The wait was 0.5 s.
        eventually(lambda: _read_clock(client) > lease.fence / 1e6 + 1.5)  # type: ignore[operator]
    next_waiter.result(1).release()
    sleeper.resume()
    # Its last command may be executed only now, when the lock is free.
    assert sleeper.read_answer() == "LockTimeout" or sleeper.ask("release") == "released"
    assert not lock.locked()


def _read_clock(client: redis.Redis) -> float:
    seconds, microseconds = client.time()
    return float(seconds + microseconds / 1e6)


def test_interrupted_waiter_returns_a_granted_lock(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that withdraws the waiter gets no reply."""

    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(connection.Connections, "call", unreachable)
        raise Interrupted

    def unreachable(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise WireError(redis.ConnectionError("cut"), sent=True)

    class LateAbandonedToken(renewals.AbandonedToken):
        """A token whose release is repeated after a minute instead of at once."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.due += 60

    with pytest.MonkeyPatch.context() as patch, held(lock) as lease:
        patch.setattr(renewals, "AbandonedToken", LateAbandonedToken)
        monkeypatch.setattr(client_resources, "_sleep", interrupt)
        with pytest.raises(Interrupted):
            lock.acquire(20)
        assert len(lock.inspect().waiters) == 1  # the server still has the interrupted waiter
        next_waiter = start_waiter(lock)
        lease.release()
        next_waiter.result(10).release()
