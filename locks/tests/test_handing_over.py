"""Tests of lease.extend() and hand_over() and of lock.adopt(), most of them with lost replies.

A 'proxied' lock reaches the server through a proxy, a 'direct' lock without it.
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
    """A lease with renew=False is extended three times, and then expires."""
    lock = RedisLock(client, "extended", ttl=0.4, renew=False)
    with hold_lock(lock) as lease:
        for _ in range(3):
            assert not lease.lost_event.wait(0.25)  # less than the ttl
            lease.extend(0.4)
        # The watchdog does not renew the lease, but notices when it expires.
        assert lease.lost_event.wait(2)
        assert lease.loss is LossReason.EXPIRED


def test_late_renewal_does_not_affect_the_adopter(client: redis.Redis, lock: RedisLock) -> None:
    """A renewal and a release by the first holder arrive after the adoption, and have no effect."""
    lease = lock.acquire(1)
    adopted_lease = lock.adopt(lease.hand_over())  # adopt() replaces the token of the first holder
    client.pexpire("lock:{tested}", 5000)
    # Send a late renewal with the token of the first holder, to at least 30 s from now (LEAST). The
    # reply is 0: another token holds the lock.
    commands = lock._make_lease_commands()
    assert commands.run(commands.prolong(None, lease.token, 30, LEAST)) == 0
    assert client.pttl("lock:{tested}") <= 5000
    assert lock._release(lease) is Release.EXPIRED
    assert adopted_lease.owned()
    assert adopted_lease.release() is Release.RELEASED


def test_adoption_with_a_lost_reply_leaves_the_lock_free(
    server: Server, client: redis.Redis, proxy: LoopbackProxy
) -> None:
    """The server executes the adoption. The lock is released long before its ttl of 30 s ends."""
    proxied_lock = RedisLock(
        server.make_client(port=proxy.port, socket_timeout=1), "adopted", ttl=30
    )
    handover = proxied_lock.acquire(1).hand_over()
    proxy.lose_reply(b"EVALSHA")
    with pytest.raises(LockBackendError):
        proxied_lock.adopt(handover)
    with RedisLock(client, "adopted", ttl=30).hold(wait=5):
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
    """adopt() gets a text that hand_over() did not return, or one of a lock with another name."""
    with pytest.raises(ValueError, match=message):
        RedisLock(client, "refused", ttl=1).adopt(handover)


@pytest.mark.parametrize(
    "command", [lambda lease: lease.extend(30), lambda lease: lease.hand_over()]
)
def test_unanswered_extension_leaves_the_lease_unchanged(
    server: Server, proxy: LoopbackProxy, command: Callable[[Lease], object]
) -> None:
    """The reply to an extension is lost. The lease keeps its deadline, and can be used.

    The same holds for a hand-over, which begins with an extension.
    """
    lock = RedisLock(server.make_client(port=proxy.port, socket_timeout=1), "unanswered", ttl=10)
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
    """A renewal is sent first, then a hand-over. The watchdog reads the reply to the renewal last.

    The reply to the hand-over is lost. The hand-over has shortened the lease to 0.4 s, and the late
    reply to the renewal must not move the deadline again.
    """
    lock = RedisLock(server.make_client(port=proxy.port, socket_timeout=1), "unanswered", ttl=30)
    reply_arrived, may_read_reply = threading.Event(), threading.Event()
    watchdog: Any = lock._watchdog
    run_batch = watchdog._run_batch

    def run_batch_slowly(*args: Any) -> Any:
        replies = run_batch(*args)
        reply_arrived.set()
        assert may_read_reply.wait(5)
        return replies

    with hold_lock(lock) as lease:
        lease.extend(1)  # sends the script to the server
        # Patch this object, not the class: the watchdogs of earlier tests may still be at work.
        monkeypatch.setattr(watchdog, "_run_batch", run_batch_slowly)
        # Renew the lease now.
        watchdog.renewals[lock.keys[0], lease.token].due = 0.0
        watchdog.wake_before(0.0)
        assert reply_arrived.wait(5)
        proxy.lose_reply(b"EVALSHA")
        with pytest.raises(LockBackendError):
            lease.hand_over(within=0.4)
        assert lease.remaining() < 0.4
        client.set("lock:{unanswered}", "another", px=30_000)  # as if another holder had it
        may_read_reply.set()
        assert lease.lost_event.wait(5)
        assert lease.loss in (LossReason.TAKEN, LossReason.EXPIRED)
    client.delete("lock:{unanswered}")


def test_unanswered_release_of_a_reused_token_is_not_repeated(
    server: Server, client: redis.Redis, proxy: LoopbackProxy
) -> None:
    """A task queue delivers a task twice. The task adopts a lease each time, with its id as token.

    The reply to the first release is lost. Repeating that release would end the second lease.
    """
    direct_lock = RedisLock(client, "reused", ttl=30)
    lock = RedisLock(server.make_client(port=proxy.port, socket_timeout=1), "reused", ttl=30)
    lock.acquire(1).release()  # sends the scripts to the server
    first_lease = lock.adopt(direct_lock.acquire(1).hand_over(), token="task-17")
    proxy.lose_reply(b"EVALSHA")
    assert first_lease.release() is Release.UNKNOWN
    second_lease = lock.adopt(direct_lock.acquire(1).hand_over(), token="task-17")
    assert not second_lease.lost_event.wait(0.5)  # time for a repetition
    assert second_lease.owned()
    second_lease.release()


@pytest.mark.parametrize(
    ("token", "message"), [("*", "would release the lock of any holder"), ("", "must not be empty")]
)
def test_wildcard_or_empty_token_is_refused(client: redis.Redis, token: str, message: str) -> None:
    """The token * would mean any holder in release.lua."""
    lock = RedisLock(client, "any", ttl=1)
    with hold_lock(lock) as lease:
        handover = json.dumps({"name": "any", "token": lease.token, "fence": 1})
        with pytest.raises(ValueError, match=message):
            lock.adopt(handover, token=token)
        assert lease.owned()


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_unanswered_hand_over_shortens_the_trust_in_a_lease(
    server: Server, proxy: LoopbackProxy, lost: str
) -> None:
    """A hand-over within 0.6 s gets no reply, so the server may still execute it at any time.

    From then on the holder renews its lease, but trusts it for at most 0.6 s. So the lease survives
    the late execution, which sets the ttl to 0.6 s.
    """
    lock = RedisLock(server.make_client(port=proxy.port, socket_timeout=1), "shortened", ttl=30)
    with hold_lock(lock) as lease:
        # Let the next renewal also renew the key of the fence: see Renewal.choose_keys().
        lock._watchdog.renewals[lock.keys[0], lease.token].refresh_fence_at = 0.0
        lease.extend(30)
        lose = proxy.lose_request if lost == "request" else proxy.lose_reply
        lose(b"\r\nset\r\n")  # "set" is an argument of the command of hand_over()
        with pytest.raises(LockBackendError, match="not extended"):
            lease.hand_over(within=0.6)
        for _ in range(20):
            assert not lease.lost_event.wait(0.05)
            assert 0 < lease.remaining() <= 0.6
        server.make_client().pexpire("lock:{shortened}", 600)  # as the late execution does
        assert not lease.lost_event.wait(1.0)
        lease.check()


def test_moved_renewal_is_dropped_after_a_hand_over(client: redis.Redis) -> None:
    """In a cluster a renewal may move to another node, while a hand-over removes it.

    After the hand-over, the moved renewal must be dropped, and must not prolong the lease.
    """
    losses: list[LossReason] = []
    lock = RedisLock(client, "moved", ttl=0.6, on_lost=lambda _, reason: losses.append(reason))
    with lock.hold(wait=1) as lease:
        renewals = lock._watchdog.renewals
        renewal = renewals[lock.keys[0], lease.token]
        handover = lease.hand_over(within=0.5)
        # Add the renewal again, as NodeRenewals.generate_due_batches() does for a moved one.
        renewals[renewal.lease_id] = renewal
        renewal.due = 0.0
        lock._watchdog.wake_before(0.0)
        eventually(lambda: not renewals)
        assert client.pttl("lock:{moved}") <= 500
        lock.adopt(handover).release()
        assert losses == []
