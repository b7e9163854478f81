"""Extending and verifying a lease, and handing it over to another process.

A far lock reaches the server through a proxy, a near lock directly.
"""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from .. import Lease, LockBackendError, RedisLock, Release
from ..errors import LossReason
from ..sans_io.protocol import LEAST
from ..testing.server import LoopbackProxy, Server, eventually
from .waiting import hold_lock


def test_unrenewed_lease_can_be_extended(client: redis.Redis) -> None:
    """The holder extends it three times, and then lets it end."""
    lock = RedisLock(client, "extended", ttl=0.4, renew=False)
    with hold_lock(lock) as lease:
        for _ in range(3):
            assert not lease.lost_event.wait(0.25)
            lease.extend(0.4)
        # The watchdog notices the end of the lease, although it does not renew the lease.
        assert lease.lost_event.wait(2)
        assert lease.loss is LossReason.EXPIRED


def test_late_renewal_does_not_affect_the_adopter(client: redis.Redis, lock: RedisLock) -> None:
    """A renewal and a release of the first holder arrive after the adoption."""
    lease = lock.acquire(1)
    token = json.loads(lease.hand_over())["token"]  # of the first holder; adopt() makes a new token
    adopted_lease = lock.adopt(json.dumps({"name": "tested", "token": token, "fence": lease.fence}))
    client.pexpire("lock:{tested}", 5000)
    commands = lock._make_lease_commands()
    # A renewal with the first holder's token changes nothing: another token holds the lock.
    assert commands.run(commands.prolong(None, token, 30, LEAST)) == 0
    assert client.pttl("lock:{tested}") <= 5000
    assert lock._release(lease) is Release.EXPIRED
    assert adopted_lease.owned()
    assert adopted_lease.release() is Release.RELEASED


def test_adoption_with_a_lost_answer_leaves_no_orphan_lock(
    server: Server, client: redis.Redis, proxy: LoopbackProxy
) -> None:
    """The server executed the adoption. The lock is free long before its ttl of 30 s is over."""
    proxied_lock = RedisLock(
        server.make_client(port=proxy.port, socket_timeout=1), "lost on adoption", ttl=30
    )
    handover = proxied_lock.acquire(1).hand_over()
    proxy.lose_reply(b"EVALSHA")
    with pytest.raises(LockBackendError):
        proxied_lock.adopt(handover)
    with RedisLock(client, "lost on adoption", ttl=30).hold(wait=5):
        pass


@pytest.mark.parametrize(
    ("handover", "message"),
    [
        ("{}", "hand_over"),
        ("not json", "hand_over"),
        ("[" * 100_000, "hand_over"),
        (None, "hand_over"),
        ('{"name": "another", "token": "1-a", "fence": 1}', "adopt it with a lock of that name"),
    ],
)
def test_invalid_handover_is_refused(client: redis.Redis, handover: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RedisLock(client, "refused", ttl=1).adopt(handover)


@pytest.mark.parametrize(
    "command", [lambda lease: lease.extend(30), lambda lease: lease.hand_over()]
)
def test_unanswered_extension_leaves_the_lease_unchanged(
    server: Server, proxy: LoopbackProxy, command: Callable[[Lease], object]
) -> None:
    """A hand-over begins with an extension."""
    lock = RedisLock(server.make_client(port=proxy.port, socket_timeout=1), "unheard", ttl=10)
    with hold_lock(lock) as lease:
        first_deadline = lease.deadline
        proxy.lose_reply(b"EVALSHA")
        with pytest.raises(LockBackendError, match="not extended"):
            command(lease)
        assert lease.deadline <= first_deadline
        lease.check()
        assert lease.release() is Release.RELEASED


def test_reply_to_a_renewal_read_after_a_hand_over_is_ignored(
    server: Server, client: redis.Redis, proxy: LoopbackProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog reads the reply only after an unanswered hand-over has shortened the lease.

    The reply must not prolong the trust in the lease again.
    """
    lock = RedisLock(server.make_client(port=proxy.port, socket_timeout=1), "unheard", ttl=30)
    reply_arrived, lock_was_taken = threading.Event(), threading.Event()
    watchdog: Any = lock._watchdog
    run_batch = watchdog._run_batch

    def run_batch_slowly(*args: Any) -> Any:
        replies = run_batch(*args)
        reply_arrived.set()
        assert lock_was_taken.wait(5)
        return replies

    with hold_lock(lock) as lease:
        lease.extend(1)  # the server knows the script from here on
        # Only this watchdog is patched: those of earlier tests may still release their tokens.
        monkeypatch.setattr(watchdog, "_run_batch", run_batch_slowly)
        watchdog.renewals[lock.keys[0], lease.token].due = 0.0
        watchdog.wake_driver_before(0.0)
        assert reply_arrived.wait(5)
        proxy.lose_reply(b"EVALSHA")
        with pytest.raises(LockBackendError):
            lease.hand_over(within=0.4)
        assert lease.remaining() < 0.4
        client.set("lock:{unheard}", "another", px=30_000)  # as if the lease had ended
        lock_was_taken.set()
        assert lease.lost_event.wait(5)
        assert lease.loss in (LossReason.TAKEN, LossReason.EXPIRED)
    client.delete("lock:{unheard}")


def test_unanswered_release_of_a_reused_token_is_not_repeated(
    server: Server, client: redis.Redis, proxy: LoopbackProxy
) -> None:
    """A queue delivered a task twice, and the task uses its id as the token both times.

    A repetition of the first release would end the second lease.
    """
    direct_lock = RedisLock(client, "again", ttl=30)
    lock = RedisLock(server.make_client(port=proxy.port, socket_timeout=1), "again", ttl=30)
    lock.acquire(1).release()
    first_lease = lock.adopt(direct_lock.acquire(1).hand_over(), token="task-17")
    proxy.lose_reply(b"EVALSHA")
    assert first_lease.release() is Release.UNKNOWN
    second_lease = lock.adopt(direct_lock.acquire(1).hand_over(), token="task-17")
    assert not second_lease.lost_event.wait(0.5)
    assert second_lease.owned()
    second_lease.release()


@pytest.mark.parametrize(
    ("token", "message"), [("*", "would release the lock of any holder"), ("", "must not be empty")]
)
def test_wildcard_or_empty_token_is_refused(client: redis.Redis, token: str, message: str) -> None:
    """In release.lua the token * stands for any holder."""
    lock = RedisLock(client, "any", ttl=1)
    with hold_lock(lock) as lease:
        handover = json.dumps({"name": "any", "token": lease.token, "fence": 1})
        with pytest.raises(ValueError, match=message):
            lock.adopt(handover, token=token)
        assert lease.owned()


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_lease_is_trusted_no_longer_than_an_unanswered_hand_over(
    server: Server, proxy: LoopbackProxy, lost: str
) -> None:
    """The server may execute the unanswered command of the hand-over after a renewal."""
    lock = RedisLock(server.make_client(port=proxy.port, socket_timeout=1), "cut short", ttl=30)
    with hold_lock(lock) as lease:
        # The next renewal must also renew the key of the fence: see Renewal.choose_keys().
        lock._watchdog.renewals[lock.keys[0], lease.token].refresh_fence_at = 0.0
        lease.extend(30)
        lose = proxy.lose_request if lost == "request" else proxy.lose_reply
        lose(b"\r\nset\r\n")  # "set" is an argument of the command of hand_over()
        with pytest.raises(LockBackendError, match="not extended"):
            lease.hand_over(within=0.6)
        for _ in range(20):
            assert not lease.lost_event.wait(0.05)
            assert 0 < lease.remaining() <= 0.6
        server.make_client().pexpire("lock:{cut short}", 600)  # the late command arrives
        assert not lease.lost_event.wait(1.0)
        lease.check()


def test_moved_renewal_is_dropped_after_a_hand_over(client: redis.Redis) -> None:
    """The renewal moves to another node of a cluster during the hand-over, which forgets it."""
    reasons: list[LossReason] = []
    lock = RedisLock(client, "moved", ttl=0.6, on_lost=lambda _, reason: reasons.append(reason))
    with lock.hold(wait=1) as lease:
        renewals = lock._watchdog.renewals
        renewal = renewals[lock.keys[0], lease.token]
        handover = lease.hand_over(within=0.5)
        # NodeRenewals.generate_due_batches() adds a moved renewal again in this way.
        renewals[renewal.lease_id] = renewal
        renewal.due = 0.0
        lock._watchdog.wake_driver_before(0.0)
        eventually(lambda: not renewals)
        assert client.pttl("lock:{moved}") <= 500
        lock.adopt(handover).release()
        assert reasons == []
