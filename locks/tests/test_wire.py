"""Tests of the commands of a lock: lost replies, broken connections, options of the client.

A 'proxied' lock reaches the server through a proxy, a 'direct' lock without it.
"""

import time
from typing import Any

import pytest
import redis

from .. import LockBackendError, RedisLock, Release
from ..client_resources import perform
from ..clock import now
from ..sans_io.acquisition import Acquisition
from ..sans_io.protocol import STAY
from ..testing.server import LoopbackProxy, Server, eventually
from .waiting import hold_lock, run_in_thread, start_waiter


def test_retry_after_a_lost_reply_has_the_same_fence(lock: RedisLock) -> None:
    """An acquisition sends its command twice, as after a lost reply, with the same token.

    (STAY is an argument of acquire.lua: do not put the caller into the queue.)
    """
    acquisition = Acquisition(lock, lock._wakeups.waiters, None)
    first_reply, second_reply = (
        perform(lock._resources, acquisition, acquisition.request_lock(STAY)) for _ in range(2)
    )
    assert first_reply.fence is not None
    assert second_reply.fence == first_reply.fence
    assert lock.inspect().owner == acquisition.token.decode()


def test_lost_reply_to_a_waiter_leaves_no_queue_entry(
    server: Server, client: redis.Redis, proxy: LoopbackProxy
) -> None:
    """The reply to the command that puts the waiter into the queue is lost."""
    direct_lock = RedisLock(client, "lost reply", ttl=10)
    proxied_lock = RedisLock(server.make_client(port=proxy.port), "lost reply", ttl=10)
    with hold_lock(direct_lock):
        # Subscribe now. Then the first command of the acquisition puts the waiter into the queue.
        proxied_lock._wakeups.listen(now() + 5)
        proxy.lose_reply(b"EVALSHA")
        with pytest.raises(LockBackendError):
            proxied_lock.acquire(5)
        assert direct_lock.inspect().waiters == ()


@pytest.mark.usefixtures("_frequent_probes")
def test_silent_subscription_is_replaced(
    server: Server, client: redis.Redis, proxy: LoopbackProxy
) -> None:
    """The connection of the subscription stays open, but no message arrives any more.

    A probe, which checks silent subscriptions, notices that. The waiter subscribes again, and is
    woken on its new channel.
    """
    direct_lock = RedisLock(client, "silent", ttl=30)
    proxied_lock = RedisLock(server.make_client(port=proxy.port), "silent", ttl=30)
    with hold_lock(direct_lock) as lease:
        waiter = start_waiter(proxied_lock)
        old_channel = proxied_lock._wakeups.waiters.channel
        proxy.freeze_connections(having_sent=b"SUBSCRIBE")
        eventually(
            lambda: (
                proxied_lock._wakeups.waiters.is_listening
                and proxied_lock._wakeups.waiters.channel != old_channel
            )
        )
        # Wait until the waiter's entry in the queue has the new channel.
        eventually(
            lambda: any(
                proxied_lock._wakeups.waiters.channel in entry
                for entry in client.hvals(proxied_lock.keys[2])
            )
        )
        lease.release()
        assert waiter.result(2).release() is Release.RELEASED


def test_broken_idle_connection_is_replaced_before_use(
    server: Server, proxy: LoopbackProxy
) -> None:
    """The connection is cut while it is idle. The next command uses a new one, without an error."""
    lock = RedisLock(server.make_client(port=proxy.port), "idle", ttl=10)
    with hold_lock(lock):
        proxy.cut()
        # Wait until the client has received the end of the connection.
        eventually(lambda: _is_dead(lock._connections._idle[-1]))
        assert lock.locked()


def test_refusal_of_a_replica_is_a_backend_error(own_server: Server) -> None:
    """The server becomes a replica while a lock is held, and refuses all writes from then on."""
    client = own_server.make_client()
    lock = RedisLock(client, "demoted", ttl=0.6)
    lease = lock.acquire(1)
    client.replicaof("127.0.0.1", "1")  # a replica of a master that does not exist
    with pytest.raises(LockBackendError, match="read only replica"):
        RedisLock(client, "another", ttl=10).acquire(5)
    assert lease.lost_event.wait(2)
    assert lease.release() is Release.UNKNOWN


@pytest.mark.parametrize(
    "options",
    [
        {"decode_responses": True},
        {"protocol": 2},
        {"protocol": 3},
        {"encoding": "latin-1"},
        {"client_name": "named"},
        {"single_connection_client": True},
        {"health_check_interval": 1},
        {"db": 5},
    ],
)
def test_lock_works_with_any_client_options(server: Server, options: dict[str, Any]) -> None:
    """Some of these options change how commands are encoded or replies are decoded."""
    client = server.make_client(**options)
    lock = RedisLock(client, "蘋果 größe", ttl=10)
    with hold_lock(lock) as lease:
        assert isinstance(lease.fence, int)
        assert lock.inspect().owner == lease.token
        waiter = start_waiter(lock)
    assert waiter.result(5).release() is Release.RELEASED
    client.flushdb()


@pytest.mark.parametrize("waiter_count", [5, 50])
def test_contended_acquisition_takes_two_commands(own_server: Server, waiter_count: int) -> None:
    """Each waiter sends one command to join the queue, and one command to release the lock."""
    client = own_server.make_client()  # on the shared server earlier tests may still clean up
    lock = RedisLock(client, "counted", ttl=30)
    lock._wakeups.listen(now() + 5)  # a waiter without a subscription sends one more command
    with hold_lock(lock):
        client.config_resetstat()
        waiters = [run_in_thread(lambda: lock.acquire(30).release()) for _ in range(waiter_count)]
        eventually(lambda: client.zcard("lock:{counted}:places") == waiter_count)
    for waiter in waiters:
        waiter.result(10)
    calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    # Two scripts for each waiter are expected, and the release of the first lease. On a busy
    # machine a waiter may be woken too late, and polls.
    extra_polls = calls - (2 * waiter_count + 1)
    assert 0 <= extra_polls <= max(1, waiter_count // 10)


def test_waiters_do_not_poll_while_others_are_served(own_server: Server) -> None:
    """No waiter polls, although the last of twelve waiters wait longer than a ttl.

    The earlier waiters hold the lock for 0.15 s each, and the ttl is 1 s.
    """
    client = own_server.make_client()
    lock = RedisLock(client, "served", ttl=1.0, renew=False)
    lock._wakeups.listen(now() + 5)  # a waiter without a subscription sends one more command
    waiter_count = 12

    def hold_briefly() -> None:
        with lock.hold(wait=30):
            time.sleep(0.15)

    with hold_lock(lock):
        client.config_resetstat()
        waiters = [run_in_thread(hold_briefly) for _ in range(waiter_count)]
        eventually(lambda: client.zcard("lock:{served}:places") == waiter_count)
    for waiter in waiters:
        waiter.result(10)
    # Two scripts for each waiter, the release of the first lease, and a tolerance of 3 polls.
    calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert calls <= 2 * waiter_count + 1 + 3


def _is_dead(connection: Any) -> bool:
    """Return whether the server has closed the connection, or has sent unexpected bytes."""
    try:
        return bool(connection.can_read())
    except redis.ConnectionError:
        return True
