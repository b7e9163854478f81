"""Silent and dead servers, lost requests and replies: the errors, and the cleanup.

The locks are used from threads, or from an event loop (lock_factories.py).
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

SERVER_LOCK_KINDS = ["threads", "asyncio"]
#: The command name in a request that sends a script's text.
EVAL_COMMAND = b"$4\r\nEVAL\r\n"


@pytest.fixture(params=SERVER_LOCK_KINDS)
def factory(request: pytest.FixtureRequest, own_server: Server) -> Iterator[LockFactory]:
    """A factory of locks on a server that the test may stop.

    In these tests a lock should give up a silent server long before the client's timeout of 4 s.
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
    """The cleanup may take 0.5 s more. The server acts late, but the lock does not stay taken."""
    lock = factory.make_lock("silent", ttl=30)
    if is_connected:
        lock.acquire(1).release()
    own_server.signal(signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(LockBackendError):
        lock.acquire(0.1)
    # The wait of 0.1 s, at most twice 0.5 s for the server, and slack.
    assert time.monotonic() - started < 2
    own_server.signal(signal.SIGCONT)
    with lock.hold(wait=5):  # the abandoned acquisition does not keep the lock taken
        pass


def test_only_an_outage_longer_than_the_lease_loses_it(
    factory: LockFactory, own_server: Server
) -> None:
    """The loss is noticed, and the lock works again afterwards."""
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
    """redis-py itself would retry ten times."""
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


def test_lost_reply_is_an_error_and_gives_the_lock_back(
    proxied_factory: LockFactory, proxy: LoopbackProxy, client: redis.Redis
) -> None:
    """The client does not retry: it would find the lock taken by itself, or already released."""
    lock = proxied_factory.make_lock("lost reply")
    direct_lock = RedisLock(client, "lost reply", ttl=10)  # without the proxy
    assert not lock.locked()  # opens the connection
    proxy.lose_reply(b"EVALSHA")
    with pytest.raises(LockBackendError):
        lock.acquire(5)
    eventually(lambda: not direct_lock.locked())
    lease = lock.acquire(5)
    proxy.lose_reply(lease.token.encode())  # the cleanup above may still run, with another token
    assert lease.release() is Release.UNKNOWN
    assert lease.release() is Release.UNKNOWN  # the first command may have freed it
    assert not direct_lock.locked()


def test_release_that_did_not_arrive_is_repeated_at_once(
    proxied_factory: LockFactory,
    proxy: LoopbackProxy,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until the release is repeated, the lock stays taken and its waiters wait."""
    # With this pause, a repetition that is not made at once comes too late for the test.
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
    """The first release does not reach the server."""
    # Otherwise abandon() would repeat the release.
    monkeypatch.setattr(renewals.Renewals, "abandon", lambda *_: None)
    lease = proxied_factory.make_lock("twice").acquire(1)
    proxy.lose_request(ANY_COMMAND)
    assert lease.release() is Release.UNKNOWN
    assert lease.release() is Release.RELEASED
    assert not RedisLock(client, "twice", ttl=10).locked()


def test_renewals_survive_forgotten_scripts_and_a_cut(
    proxied_factory: LockFactory, proxy: LoopbackProxy, client: redis.Redis
) -> None:
    """The server has forgotten the scripts. The connection is cut while their texts are sent."""
    leases = [
        proxied_factory.make_lock(f"forgotten {number}", ttl=1.5).acquire(1) for number in range(4)
    ]
    client.script_flush()
    proxy.lose_reply(EVAL_COMMAND)
    # Only a lease that is renewed again and again reaches this deadline.
    late_deadline = max(lease.deadline for lease in leases) + 2
    eventually(lambda: all(lease.deadline > late_deadline for lease in leases), within=6)
    assert not any(lease.lost for lease in leases)
    assert {lease.release() for lease in leases} == {Release.RELEASED}


class FlakyCredentials(redis.CredentialProvider):
    """A credential provider that fails while it is broken."""

    is_broken = False

    def get_credentials(self) -> tuple[str, str]:
        if self.is_broken:
            raise RuntimeError("the vault is sealed")
        return "default", ""


@pytest.mark.parametrize("lock_kind", SERVER_LOCK_KINDS)
def test_exception_of_the_block_survives_a_failed_release(
    own_server: Server, lock_kind: str
) -> None:
    """The release fails with an error that is not one of redis-py's, and is repeated later."""
    credentials = FlakyCredentials()
    factory = make_server_factory(lock_kind, own_server.port, credential_provider=credentials)
    lock = factory.make_lock("masked")
    with pytest.raises(ZeroDivisionError), lock.hold(wait=1) as lease:  # noqa: PT012
        credentials.is_broken = True
        factory.admin_client.client_kill_filter(_type="normal", skipme=True)
        time.sleep(0.05)  # so that the client sees the cut at the release
        raise ZeroDivisionError
    assert lease.outcome is Release.UNKNOWN
    with pytest.raises(RuntimeError, match="vault"):
        lock.acquire(1)
    credentials.is_broken = False
    eventually(lambda: not lock.locked())  # long before its ttl
    factory.close()
