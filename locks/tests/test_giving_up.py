"""Giving up: an exception, or the end of the wait, leaves nothing in the queue and no lock."""

from typing import Any

import pytest
import redis

from .. import LockTimeout, RedisLock, Release, client_resources, connection
from ..sans_io import acquisition, renewals
from ..sans_io.protocol import LEAVE, WireError
from ..testing.server import eventually
from .waiting import Start, held, is_free, start_waiter, wait_until_queued


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
    ("released", "gets_it"),
    [("while it is queued", True), ("before its last question", True), ("after it", False)],
)
def test_hand_over_at_the_end_of_the_wait_has_one_owner(
    client: redis.Redis,
    lock: RedisLock,
    monkeypatch: pytest.MonkeyPatch,
    released: str,
    gets_it: bool,
) -> None:
    """A waiter that is not woken any more asks once more, and leaves the queue in the same step."""
    ask = acquisition.Acquisition.ask

    def last_sleep(waiter: acquisition.Acquisition, *_: object) -> None:
        if released == "while it is queued":
            assert lease.release() is Release.RELEASED
            assert lock.inspect().owner == waiter.token.decode()
        waiter.end = 0.0

    def last_question(waiter: acquisition.Acquisition, *what: Any) -> Any:
        if what == (LEAVE,) and released == "before its last question":
            client.delete(*lock.keys[1:3])  # its wait is over there too
            assert lease.release() is Release.RELEASED
        answer = yield from ask(waiter, *what)
        if what == (LEAVE,) and released == "after it":
            assert lease.release() is Release.RELEASED
        return answer

    lease = lock.acquire(1)
    monkeypatch.setattr(client_resources, "_sleep", last_sleep)
    monkeypatch.setattr(acquisition.Acquisition, "ask", last_question)
    if gets_it:
        mine = lock.acquire(5)
        assert lock.inspect().owner == mine.token
        assert mine.release() is Release.RELEASED
    else:
        with pytest.raises(LockTimeout):
            lock.acquire(5)
    assert is_free(lock)


def test_waiter_after_its_wait_is_not_given_the_lock(
    client: redis.Redis, lock: RedisLock, worker: Start
) -> None:
    asleep = worker()
    with held(lock) as lease:
        asleep.send("acquire", name="tested", ttl=10, wait=0.5)
        wait_until_queued(lock, 1)
        asleep.pause()
        second = start_waiter(lock)
        eventually(lambda: _clock(client) > lease.fence / 1e6 + 1.5)  # type: ignore[operator]
    second.result(1).release()
    asleep.resume()
    assert asleep.read_answer() == "LockTimeout" or asleep.ask("release") == "released"
    assert not lock.locked()


def _clock(client: redis.Redis) -> float:
    seconds, micros = client.time()
    return float(seconds + micros / 1e6)


def test_interrupted_waiter_returns_a_granted_lock(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that tells the server that it gave up got no reply."""

    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(connection.Connections, "call", unreachable)
        raise Interrupted

    def unreachable(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise WireError(redis.ConnectionError("cut"), sent=True)

    class Late(renewals.AbandonedToken):
        """By itself it says so again at once."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.due += 60

    with pytest.MonkeyPatch.context() as patch, held(lock) as lease:
        patch.setattr(renewals, "AbandonedToken", Late)
        monkeypatch.setattr(client_resources, "_sleep", interrupt)
        with pytest.raises(Interrupted):
            lock.acquire(20)
        assert len(lock.inspect().waiters) == 1  # the server still thinks that it waits
        next_one = start_waiter(lock)
        lease.release()
        next_one.result(10).release()
