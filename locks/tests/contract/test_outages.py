"""Tests of a lock whose server is silent or dead, or whose requests and replies are lost.

They check the errors, and that no lock stays taken. They run with RedisLock and AsyncRedisLock.
"""

import signal
import time
from collections.abc import Iterator

import pytest
import redis

from ... import LockBackendError, LockLost, LossReason, RedisLock, Release
from ...sans_io import renewals
from ...testing.server import LoopbackProxy, Server, eventually
from ..waiting import ANY_COMMAND, start_waiter
from .lock_factories import LockFactory, make_server_factory, yield_and_close

#: The kinds of locks that use a single server.
SERVER_LOCK_KINDS = ["threads", "asyncio"]
#: Bytes in the command that sends the text of a script, instead of its SHA-1 by EVALSHA.
EVAL_COMMAND = b"$4\r\nEVAL\r\n"


@pytest.fixture(params=SERVER_LOCK_KINDS)
def factory(request: pytest.FixtureRequest, own_server: Server) -> Iterator[LockFactory]:
    """A factory of locks on a server that the test may stop by SIGSTOP.

    The client's timeout is 4 s. A lock should give up much earlier if the server is silent.
    """
    factory = make_server_factory(request.param, own_server.port, socket_timeout=4)
    yield factory
    own_server.signal(signal.SIGCONT)
    factory.close()


@pytest.fixture(params=SERVER_LOCK_KINDS)
def proxied_factory(request: pytest.FixtureRequest, proxy: LoopbackProxy) -> Iterator[LockFactory]:
    """A factory of locks that reach the server through the proxy."""
    yield from yield_and_close(make_server_factory(request.param, proxy.port, socket_timeout=1))


@pytest.mark.parametrize("is_connected", [False, True])
def test_silent_server_delays_a_short_wait_by_half_a_second(
    factory: LockFactory, own_server: Server, is_connected: bool
) -> None:
    """An acquisition with a short wait fails soon if the server is silent.

    With `is_connected` the client already has a connection when the server becomes silent.

    When the server continues, it executes the late acquisition, and then the release that follows
    it. So the lock can be acquired again.
    """
    lock = factory.make_lock("silent", ttl=30)
    if is_connected:
        lock.acquire(1).release()
    own_server.signal(signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(LockBackendError):
        lock.acquire(0.1)
    # The wait of 0.1 s, 0.5 s for the acquisition, 0.5 s for the cleanup, and tolerance.
    assert time.monotonic() - started < 2
    own_server.signal(signal.SIGCONT)
    with lock.hold(wait=5):  # much less than the ttl of the late acquisition
        pass


def test_only_an_outage_longer_than_the_lease_loses_it(
    factory: LockFactory, own_server: Server
) -> None:
    """The server is stopped for half of the ttl, and then for longer than the ttl.

    The holder notices the loss in the second outage. Afterwards the lock works as before.
    """
    reported_losses: list[LossReason] = []
    lock = factory.make_lock(
        "outage", ttl=0.9, on_lost=lambda _, reason: reported_losses.append(reason)
    )
    lease = lock.acquire(1)
    own_server.signal(signal.SIGSTOP)
    time.sleep(0.45)  # the first renewal, after a third of the ttl, fails
    own_server.signal(signal.SIGCONT)
    first_deadline = lease.deadline
    eventually(lambda: lease.deadline > first_deadline)
    lease.check()
    expires_at = time.monotonic() + 0.9
    own_server.signal(signal.SIGSTOP)
    eventually(lambda: lease.loss)
    assert time.monotonic() < expires_at + 0.2
    assert lease.remaining() == 0
    with pytest.raises(LockLost):
        lease.check()
    time.sleep(0.1)  # the key expires slightly later than the lease
    own_server.signal(signal.SIGCONT)
    eventually(lambda: reported_losses == [LossReason.EXPIRED])
    assert lease.release() is Release.EXPIRED
    later_lease = lock.acquire(5)
    time.sleep(1.2)  # longer than the ttl
    later_lease.check()  # it was renewed
    assert later_lease.release() is Release.RELEASED


def test_dead_server_is_noticed_at_once_without_retries(
    factory: LockFactory, own_server: Server
) -> None:
    """The server is killed. Acquisitions fail at once, where redis-py would retry ten times."""
    lock = factory.make_lock("died", ttl=30)
    lease = lock.acquire(1)
    waiter = start_waiter(lock)
    own_server.kill()
    with pytest.raises(LockBackendError):
        waiter.result(2)
    assert lease.release() is Release.UNKNOWN
    started = time.monotonic()
    with pytest.raises(LockBackendError, match="was not reached"):
        lock.acquire(10)
    assert time.monotonic() - started < 0.5
    own_server.start()
    with pytest.raises(ZeroDivisionError), lock.hold(wait=1):  # noqa: PT012
        own_server.kill()
        raise ZeroDivisionError  # the failed release must not hide it
    own_server.start()
    lock.acquire(1).release()


def test_lost_reply_is_an_error_and_leaves_the_lock_free(
    proxied_factory: LockFactory, proxy: LoopbackProxy, client: redis.Redis
) -> None:
    """The reply to an acquisition is lost, and later the reply to a release.

    Neither command is retried. A retried acquisition could find the lock taken by the first try. A
    retried release could find the lock already released.
    """
    lock = proxied_factory.make_lock("lost reply")
    direct_lock = RedisLock(client, "lost reply", ttl=10)  # without the proxy
    assert not lock.locked()  # opens the connection
    proxy.lose_reply(b"EVALSHA")
    with pytest.raises(LockBackendError):
        lock.acquire(5)
    eventually(lambda: not direct_lock.locked())
    lease = lock.acquire(5)
    # Match the token, because the cleanup of the first acquisition may still send a release.
    proxy.lose_reply(lease.token.encode())
    assert lease.release() is Release.UNKNOWN
    assert lease.release() is Release.UNKNOWN  # the first release may have freed the lock
    assert not direct_lock.locked()


def test_release_that_did_not_arrive_is_repeated_at_once(
    proxied_factory: LockFactory,
    proxy: LoopbackProxy,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request of a release is lost. A repetition in the background releases the lock."""
    # If the repetition waited for this pause first, it would come too late for the test.
    monkeypatch.setattr(renewals, "SHORTEST_RELEASE_PAUSE_SECONDS", 60)
    direct_lock = RedisLock(client, "repeated", ttl=60)
    lease = proxied_factory.make_lock("repeated", ttl=60).acquire(1)
    proxy.lose_request(ANY_COMMAND)
    assert lease.release() is Release.UNKNOWN
    eventually(lambda: not direct_lock.locked())


def test_failed_release_may_be_called_again(
    proxied_factory: LockFactory,
    proxy: LoopbackProxy,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request of the first release is lost. The second call of release() succeeds."""
    # Do not repeat the release in the background, as abandon() would.
    monkeypatch.setattr(renewals.Renewals, "abandon", lambda *_: None)
    lease = proxied_factory.make_lock("twice").acquire(1)
    proxy.lose_request(ANY_COMMAND)
    assert lease.release() is Release.UNKNOWN
    assert lease.release() is Release.RELEASED
    assert not RedisLock(client, "twice", ttl=10).locked()


def test_renewals_survive_forgotten_scripts_and_a_cut(
    proxied_factory: LockFactory, proxy: LoopbackProxy, client: redis.Redis
) -> None:
    """The server has forgotten the scripts, and the connection is cut when their texts are sent."""
    leases = [
        proxied_factory.make_lock(f"forgotten {number}", ttl=1.5).acquire(1) for number in range(4)
    ]
    client.script_flush()
    proxy.lose_reply(EVAL_COMMAND)
    # This is later than one ttl from now, so only repeated renewals reach it.
    late_deadline = max(lease.deadline for lease in leases) + 2
    eventually(lambda: all(lease.deadline > late_deadline for lease in leases), within=6)
    assert not any(lease.lost for lease in leases)
    assert {lease.release() for lease in leases} == {Release.RELEASED}


class FlakyCredentials(redis.CredentialProvider):
    """A credential provider that raises an exception while `is_broken` is set."""

    is_broken = False

    def get_credentials(self) -> tuple[str, str]:
        if self.is_broken:
            raise RuntimeError("no credentials")
        return "default", ""


@pytest.mark.parametrize("lock_kind", SERVER_LOCK_KINDS)
def test_exception_of_the_block_survives_a_failed_release(
    own_server: Server, lock_kind: str
) -> None:
    """The release fails after the block raised an exception. The caller gets the block's exception.

    The error of the release is not one of redis-py's. The release is repeated in the background.
    """
    credentials = FlakyCredentials()
    factory = make_server_factory(lock_kind, own_server.port, credential_provider=credentials)
    lock = factory.make_lock("failing release")
    with pytest.raises(ZeroDivisionError), lock.hold(wait=1) as lease:  # noqa: PT012
        credentials.is_broken = True
        factory.admin_client.client_kill_filter(_type="normal", skipme=True)
        time.sleep(0.05)  # until the cut has reached the client
        raise ZeroDivisionError
    assert lease.outcome is Release.UNKNOWN
    with pytest.raises(RuntimeError, match="no credentials"):
        lock.acquire(1)
    credentials.is_broken = False
    eventually(lambda: not lock.locked())  # within 5 s, before its ttl of 10 s has ended
    factory.close()
