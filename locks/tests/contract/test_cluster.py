"""Tests in a cluster that changes while a lock is held or waited for.

Slots move to other nodes, and primaries fail.
"""

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio

from ... import AsyncRedisLock, LockBackendError, RedisLock, Release
from ...cluster.slots import compute_slot
from ...sans_io.protocol import derive_keys
from ...testing.cluster import ClusterServers
from ...testing.server import LoopbackProxy, eventually
from ..event_loops import in_new_loop
from ..waiting import is_free, run_in_thread, start_waiter, wait_until_queued
from .conftest import CLUSTER_LOCK_KINDS
from .lock_factories import AsyncLockFactory, LockFactory, make_cluster_factory, yield_and_close


@pytest.fixture(params=CLUSTER_LOCK_KINDS)
def factory(request: pytest.FixtureRequest, cluster: ClusterServers) -> Iterator[LockFactory]:
    """Run the test with a factory of each kind of cluster lock, on the shared cluster."""
    yield from yield_and_close(make_cluster_factory(request.param, cluster.port))


def find_lock_name_at(cluster: ClusterServers, node: Any, prefix: str) -> str:
    """Return a name with this prefix for a lock whose slot is at this node."""
    for number in range(1000):
        if cluster.find_primary(compute_slot(derive_keys(f"{prefix}{number}")[0])) is node:
            return f"{prefix}{number}"
    raise AssertionError(f"none of 1000 names with the prefix {prefix!r} has its slot at {node!r}")


def test_waiters_follow_a_moving_slot(factory: LockFactory, cluster: ClusterServers) -> None:
    """The lock is released while its slot moves. All twenty waiters get it, in their order.

    The first waiter gets it within a ttl of the start of the move.
    """
    ttl = 3.0
    name = find_lock_name_at(cluster, cluster.nodes[0], f"moving {type(factory).__name__} ")
    lock, slot = factory.make_lock(name, ttl=ttl), compute_slot(derive_keys(name)[0])
    first_lease = lock.acquire(5)
    acquired_at: list[float] = []
    fences: list[Any] = []

    def acquire_and_record() -> None:
        with lock.hold(wait=30) as lease:
            acquired_at.append(time.monotonic())
            fences.append(lease.fence)

    waiters = [run_in_thread(acquire_and_record) for _ in range(20)]
    wait_until_queued(lock, 20)
    releases: list[Future[Release]] = []

    def release_halfway() -> None:
        """Release the lock when half of its keys are at the new node."""
        releases.append(run_in_thread(first_lease.release))
        time.sleep(0.05)  # the release reaches the server before the move continues

    move_started = time.monotonic()
    cluster.move(slot, cluster.nodes[1], on_half_moved=release_halfway)
    for waiter in waiters:
        waiter.result(20)
    assert releases[0].result(20) is Release.RELEASED
    assert acquired_at[0] - move_started < ttl
    assert fences == sorted(fences)
    assert is_free(lock)
    cluster.move(slot, cluster.nodes[0])
    lock.acquire(5).release()  # the lock also follows the slot back


def test_lease_survives_the_move_of_its_slot(factory: LockFactory, cluster: ClusterServers) -> None:
    """The slot of the lock's keys moves to another node while the lock is held."""
    name = find_lock_name_at(cluster, cluster.nodes[0], f"moved {type(factory).__name__} ")
    lock, slot = factory.make_lock(name, ttl=1.2), compute_slot(derive_keys(name)[0])
    with lock.hold(wait=5) as lease:
        # Both sleeps, during the move and after it, are longer than the ttl. So the lease is lost
        # unless it is renewed at the old node and at the new one.
        cluster.move(slot, cluster.nodes[1], on_half_moved=lambda: time.sleep(1.5))
        time.sleep(1.5)
        lease.check()
    assert lease.outcome is Release.RELEASED
    cluster.move(slot, cluster.nodes[0])


def test_silent_node_delays_no_renewal_at_another_node(
    factory: LockFactory, cluster: ClusterServers
) -> None:
    """One primary is stopped by SIGSTOP. A lease at another primary is renewed as before."""
    silent_name = find_lock_name_at(cluster, cluster.nodes[2], f"silent {type(factory).__name__} ")
    healthy_name = find_lock_name_at(
        cluster, cluster.nodes[0], f"healthy {type(factory).__name__} "
    )
    silent_lease = factory.make_lock(silent_name, ttl=0.9).acquire(1)
    healthy_lease = factory.make_lock(healthy_name, ttl=0.9).acquire(1)
    cluster.nodes[2].signal(signal.SIGSTOP)
    try:
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            healthy_lease.check()
            assert healthy_lease.remaining() > 0.15  # a sixth of the ttl
            time.sleep(0.02)
        assert silent_lease.lost
    finally:
        cluster.nodes[2].signal(signal.SIGCONT)
    assert healthy_lease.release() is Release.RELEASED
    eventually(
        lambda: cluster.run(cluster.nodes[0], "CLUSTER INFO")["cluster_state"] == "ok", within=10
    )
    eventually(lambda: is_free(factory.make_lock(silent_name)), within=5)  # its key expires


def test_waiters_and_leases_follow_a_failover_of_the_slot() -> None:
    """A primary is killed, and its replica takes over. The lease and the waiter survive that.

    The test uses one lock of each kind, because a failover takes long. The slots of all these locks
    are at the killed primary.
    """
    ttl = 8.0
    cluster = ClusterServers(primaries=3, replicas=1)
    # The fourth node is the replica of the first.
    killed_primary, surviving_primary, _, replica = cluster.nodes
    factories = [
        make_cluster_factory(lock_kind, surviving_primary.port) for lock_kind in CLUSTER_LOCK_KINDS
    ]
    try:
        names = [
            find_lock_name_at(cluster, killed_primary, f"failover {n} ")
            for n in range(len(factories))
        ]
        locks = [
            factory.make_lock(name, ttl=ttl) for factory, name in zip(factories, names, strict=True)
        ]
        leases = [lock.acquire(5) for lock in locks]
        waiters = [start_waiter(lock, 30) for lock in locks]
        eventually(lambda: _is_replicated(killed_primary.make_client(), replica.make_client()))
        killed_primary.kill()
        slot = compute_slot(derive_keys(names[0])[0])
        eventually(lambda: cluster.find_primary(slot) is replica, within=20)
        eventually(lambda: cluster.run(surviving_primary, "CLUSTER INFO")["cluster_state"] == "ok")
        failover_ended = time.monotonic()
        for lock, lease, waiter in zip(locks, leases, waiters, strict=True):
            lease.check()
            assert lease.release() is Release.RELEASED
            assert waiter.result(15).release() is Release.RELEASED
            lock.acquire(5).release()
        # No waiter waited longer than a ttl for its next poll. The 1 s is a tolerance.
        assert time.monotonic() - failover_ended < ttl + 1
    finally:
        for factory in factories:
            factory.close()
        cluster.stop()


def _is_replicated(primary: redis.Redis, replica: redis.Redis) -> bool:
    """Return whether the replica has received all writes of its primary."""
    offsets = [node.info("replication")["master_repl_offset"] for node in (primary, replica)]
    return bool(offsets[0] == offsets[1])


def test_node_removed_from_its_cluster_stops_no_lock() -> None:
    """After the removal the node reports that no node owns a slot. The client asks another node."""
    cluster = ClusterServers()
    removed_node = cluster.nodes[0]
    factories = [make_cluster_factory(lock_kind, cluster.port) for lock_kind in CLUSTER_LOCK_KINDS]
    try:
        names = [find_lock_name_at(cluster, node, "stays ") for node in cluster.nodes]
        locks = [factory.make_lock(name) for factory in factories for name in names]
        for lock in locks:
            assert lock.acquire(5).release() is Release.RELEASED
        cluster.remove_node(removed_node, cluster.nodes[1])
        for lock in locks:
            assert lock.acquire(10).release() is Release.RELEASED
    finally:
        for factory in factories:
            factory.close()
        cluster.stop()
        removed_node.stop()


def get_resources(factory: LockFactory, lock: Any) -> Any:
    """Return the connections, wake-ups and watchdog that the locks of this client share."""
    if isinstance(factory, AsyncLockFactory):
        return factory.call(lock.async_object._get_resources())
    return lock._resources


def test_slots_are_looked_up_at_few_silent_nodes(factory: LockFactory) -> None:
    """A refresh looks up the owners of the slots. It gives up after the first silent node.

    A refresh must not take long, because renewals and waiters wait for it.
    """
    with ExitStack() as stack:
        lock = factory.make_lock("refreshed")
        assert not lock.locked()  # from here on the client knows the owners of the slots
        nodes = get_resources(factory, lock).watchdog  # in a cluster this is the ClusterNodes
        real_endpoints = nodes.topology.endpoints
        # These sockets accept connections, but never reply.
        silent_sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)
        ]
        silent_endpoints = [silent_socket.getsockname() for silent_socket in silent_sockets]
        nodes.topology.endpoints = [*silent_endpoints, *real_endpoints]
        nodes._refreshed_at = 0.0  # long ago; shortly after a refresh, refresh() does nothing
        started = time.monotonic()
        if isinstance(factory, AsyncLockFactory):
            factory.call(nodes.refresh())
        else:
            nodes.refresh()
        # Only the first silent node was asked, for 0.5 s (LOOK_UP_SECONDS). All four would have
        # taken 2 s. The node is now last in the list, for the next refresh.
        assert time.monotonic() - started < 0.9
        assert nodes.topology.endpoints == [
            *silent_endpoints[1:],
            *real_endpoints,
            silent_endpoints[0],
        ]
        nodes.topology.endpoints = real_endpoints


@pytest.mark.usefixtures("_frequent_probes")
def test_probe_of_a_subscription_notices_a_moved_slot(factory: LockFactory) -> None:
    """No message shows that the slot has moved. The probe of the silent subscription finds out."""
    name = f"follows {type(factory).__name__}"
    lock = factory.make_lock(name, ttl=30)
    lease = lock.acquire(5)
    waiter = start_waiter(lock)
    wakeups = get_resources(factory, lock).wakeups
    first_channel = wakeups.waiters.channel
    # Another address than that of the slot's owner: as if the slot had moved away from this node.
    wakeups.endpoint = ("127.0.0.1", 1)
    eventually(lambda: wakeups.waiters.is_listening and wakeups.waiters.channel != first_channel)
    assert lease.release() is Release.RELEASED
    assert waiter.result(5).release() is Release.RELEASED


@contextmanager
def open_proxied_factory(
    lock_kind: str, cluster: ClusterServers, **options: Any
) -> Iterator[tuple[LockFactory, list[LoopbackProxy]]]:
    """Yield a factory of locks that reach each node through a proxy, and the proxies."""
    proxies = {node.port: LoopbackProxy(node.port) for node in cluster.nodes}

    def remap(endpoint: tuple[str, int]) -> tuple[str, int]:
        """Return the address of a node's proxy. The address of a proxy is returned unchanged."""
        host, port = endpoint
        return host, proxies[port].port if port in proxies else port

    port = proxies[cluster.port].port
    factory = make_cluster_factory(lock_kind, port, address_remap=remap, **options)
    try:
        yield factory, list(proxies.values())
    finally:
        factory.close()
        for proxy in proxies.values():
            proxy.stop()


@pytest.mark.parametrize("lock_kind", CLUSTER_LOCK_KINDS)
def test_adoption_with_a_lost_reply_raises_and_frees_the_lock(
    lock_kind: str, cluster: ClusterServers
) -> None:
    """An adoption without a reply raises an error, and the lock is released in the background.

    A retry could not tell whether the first try has set the new token.
    """
    with open_proxied_factory(lock_kind, cluster) as (factory, proxies):
        lock = factory.make_lock(f"adopted {lock_kind}", ttl=30)
        handover = lock.acquire(5).hand_over()
        # Lose the reply to the adoption. "set" is an argument of its command.
        rules = [proxy.lose_reply(b"\r\nset\r\n") for proxy in proxies]
        with pytest.raises(LockBackendError):
            lock.adopt(handover)
        assert any(rule.fired for rule in rules)
        for rule in rules:
            rule.cancel()
        eventually(lambda: is_free(lock))


@pytest.mark.parametrize("lock_kind", CLUSTER_LOCK_KINDS)
def test_lost_grant_is_released_if_the_retry_is_refused(
    lock_kind: str, cluster: ClusterServers
) -> None:
    """The reply to an acquisition is lost, and the new connection for its retry is refused.

    On a new connection the client first sends CLIENT SETNAME. Here its user has lost the permission
    for that command. The lock must be released, because the first try has acquired it.
    """
    with open_proxied_factory(lock_kind, cluster, client_name="refused") as (factory, proxies):
        lock = factory.make_lock(f"refused {lock_kind}", ttl=30)
        lock.acquire(5).release()  # opens the connection on which the reply is lost
        admins = [node.make_client() for node in cluster.nodes]
        for admin in admins:
            admin.execute_command("ACL SETUSER", "default", "-client|setname")
        try:
            # "stay" is an argument of the first command of an acquisition.
            rules = [proxy.lose_reply(b"\r\nstay\r\n") for proxy in proxies]
            with pytest.raises(LockBackendError, match="permission"):
                lock.acquire(5)
            assert any(rule.fired for rule in rules)
            for rule in rules:
                rule.cancel()
        finally:
            for admin in admins:
                admin.execute_command("ACL SETUSER", "default", "+@all")
        # Inspect the lock with another client, because the client of `lock` may still be refused.
        lock_of_another_client = RedisLock(factory.admin_client, lock.name, ttl=30)
        eventually(lambda: is_free(lock_of_another_client))


@in_new_loop
async def test_redirected_release_survives_a_cancellation(cluster: ClusterServers) -> None:
    """The slot has moved, so a task sends the release to the new node. This task is cancelled.

    The release still reaches the new node, although its outcome is UNKNOWN.
    """
    client = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster.port)
    name = find_lock_name_at(cluster, cluster.nodes[0], "ends elsewhere ")
    lock = AsyncRedisLock(client, name, ttl=30)
    lease = await lock.acquire(5)
    slot = compute_slot(lock.keys[0])
    await asyncio.to_thread(cluster.move, slot, cluster.nodes[1])
    nodes: Any = (await lock._get_resources()).watchdog  # in a cluster this is the ClusterNodes
    start_task = nodes.start_task

    def start_and_cancel(coroutine: Any) -> Any:
        task = start_task(coroutine)
        task.cancel()
        return task

    nodes.start_task = start_and_cancel
    assert await asyncio.wait_for(lease.release(), 5) is Release.UNKNOWN
    nodes.start_task = start_task
    async with asyncio.timeout(5):
        while await lock.locked():
            await asyncio.sleep(0.01)
    await asyncio.to_thread(cluster.move, slot, cluster.nodes[0])
    await client.aclose()
