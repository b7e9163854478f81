"""FLAW: a holder paused for longer than the session timeout loses the lock, and learns it too late.

This is the alternative to Redis in article A1 (docs/sources.md). Every contender creates an
ephemeral sequential node. The contender whose node has the lowest number has the lock. Every other
contender watches the node before its own, so that a release wakes only one contender. ZooKeeper
deletes a node when the session of its client ends.

    time 0.0   A has the lowest node, reads a stock of 1, and its whole process is stopped
    time 1.0   the server has not heard from A for the session timeout, and ends A's session
    time 1.1   B is next, reads a stock of 1 too and sells it
    time 9.0   A's process continues, and sells the same unit before its client learns of the end

The load test's fault `pause` shows this flaw. The czxid of the node, a number that rises with every
acquisition, is the lease's `fence`. A database that checked the fence would refuse A's write, but
article A1 does not check it, and neither does this strategy. Article A1 says that the lock is free
"as long as the client hangs up". That is true only if the client closes its session. After a kill
the lock is free when the session times out.
"""

import math
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.db import transaction
from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from locks import Lease, Lock, LockBackendError, LockTimeout, LossReason, Release
from locks.clock import now
from shop.errors import Unavailable
from shop.sale.locked import hold_lock
from shop.sale.points import point_reached
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy

#: Time for opening the session, and for waiting while another thread opens it.
CONNECT_TIMEOUT_SECONDS = 5.0
#: The errors of a request that failed or got no answer in time.
REQUEST_ERRORS = KazooException, KazooTimeoutError


def connect(hosts: str, *, ttl: float) -> Any:
    """Return a started KazooClient with a session timeout of `ttl` seconds.

    Each process needs its own client, created after the fork. A server changes a timeout that is
    shorter than 2 of its ticks or longer than 20. Raises LockBackendError if no server answers
    within CONNECT_TIMEOUT_SECONDS.
    """
    from kazoo.client import KazooClient  # loaded only if ZooKeeper is used

    client = KazooClient(hosts=hosts, timeout=ttl)
    try:
        client.start(timeout=CONNECT_TIMEOUT_SECONDS)
    except KazooTimeoutError as error:
        client.close()
        raise LockBackendError(f"no ZooKeeper answers at {hosts}; start it") from error
    return client


class ZookeeperLock(Lock):
    """A lock of ephemeral sequential nodes, each of which watches its predecessor.

    client  the result of connect(); all locks of the process share its session
    ttl     the session timeout of `client`, and the timeout of each request

    First come, first served. While the connection is down, `lease.check()` raises, because the
    session may have ended. Once the session has ended, `lease.lost` is true.
    """

    def __init__(self, client: Any, name: str, *, ttl: float) -> None:
        super().__init__(name, ttl=ttl)
        self.client = client
        self.path = f"/locks/lock:{quote(name, safe='')}"

    def acquire(self, wait: float | None) -> Lease:
        prefix = secrets.token_hex(16)
        started_at = now()
        deadline = math.inf if wait is None else started_at + wait
        try:
            node, stat = self._create_node(prefix)
            self._wait_for_turn(node, deadline)
        except BaseException as error:
            # Even after LockTimeout or Ctrl-C this waiter's node must not stay in the queue.
            self._delete_own_node(prefix)
            if isinstance(error, REQUEST_ERRORS):
                raise LockBackendError(name=self.name) from error
            raise
        return self._make_lease(node, stat, now() - started_at)

    def _make_lease(self, node: str, stat: Any, waited_seconds: float) -> Lease:
        """Return the lease of the holder of `node`. The lease is lost if the session ends."""

        def on_state(state: str) -> bool:
            """Update the lease. kazoo calls this with each state until it returns True."""
            # While the connection is down, lease.check() must raise: the deadline 0.0 has passed.
            lease.deadline = math.inf if state == "CONNECTED" else 0.0
            if state == "LOST":
                lease.mark_lost(LossReason.GONE)
            return state == "LOST"

        lease = Lease(
            name=self.name,
            token=node,
            fence=stat.czxid,
            deadline=math.inf,
            release=partial(self._release, on_state),
            waited_seconds=waited_seconds,
        )
        self.client.add_listener(on_state)
        # The state may have changed before the listener was added.
        session = self.client.client_id  # (id, password); None while the connection is down
        if session is None:
            lease.deadline = 0.0
        elif session[0] != stat.ephemeralOwner:  # the session that created the node has ended
            lease.mark_lost(LossReason.GONE)
        return lease

    def _create_node(self, prefix: str) -> tuple[str, Any]:
        """Create this waiter's node, and return its path and its stat.

        If the connection is lost during the request, the server may have created the node.

        prefix  the beginning of the node's name, unique to this waiter
        """
        options = {"ephemeral": True, "sequence": True, "makepath": True, "include_data": True}
        try:
            creation = self.client.create_async(f"{self.path}/{prefix}-", **options)
            node, stat = creation.get(timeout=self.ttl)
        except ConnectionLoss:
            own_nodes = [
                name for name in self._list_nodes(timeout=self.ttl) if name.startswith(prefix)
            ]
            if not own_nodes:
                raise
            node = f"{self.path}/{own_nodes[0]}"
            stat = self._send_request(lambda: self.client.exists_async(node), self.ttl)
        return node, stat

    def _wait_for_turn(self, node: str, deadline: float) -> None:
        """Wait until `node` is the first in the queue.

        Raises LockTimeout at `deadline`, a time on the clock of now().
        """
        while predecessor := self._find_predecessor(node):
            point_reached.send("zookeeper:before_watch")  # a test can stop the thread here
            self._wait_for_change(predecessor, deadline)

    def _wait_for_change(self, predecessor: str, deadline: float) -> None:
        """Wait until the predecessor's node is gone, or the connection to ZooKeeper is lost.

        Raises LockTimeout at `deadline`, a time on the clock of now().
        """
        has_changed = threading.Event()

        def on_event(event: Any) -> None:
            has_changed.set()

        watch = partial(self.client.exists_async, predecessor, on_event)
        if self._send_request(watch, self.ttl) is None:
            return  # the node was gone before the watch was set
        seconds_left = deadline - now()
        timeout = None if seconds_left == math.inf else seconds_left
        if seconds_left <= 0 or not has_changed.wait(timeout):
            raise LockTimeout(name=self.name)

    def _find_predecessor(self, node: str) -> str | None:
        """Return the path of the node before this waiter's node; None if the waiter is first.

        node  the path of this waiter's node

        Raises LockBackendError if this waiter's node is gone.
        """
        names = sorted(self._list_nodes(timeout=self.ttl), key=_get_sequence_number)
        own_name = node.rpartition("/")[2]
        if own_name not in names:
            raise LockBackendError(
                "the ZooKeeper session ended, and with it our node; acquire the lock again",
                name=self.name,
            )
        position = names.index(own_name)
        if position == 0:
            return None
        return f"{self.path}/{names[position - 1]}"

    def _release(self, listener: Callable[[str], bool], lease: Lease) -> Release:
        self.client.remove_listener(listener)
        node_path = lease.token  # the lease's token is the path of its node
        try:
            self.client.delete_async(node_path).get(timeout=self.ttl)
        except (NoNodeError, SessionExpiredError):
            return Release.EXPIRED
        except REQUEST_ERRORS:
            self._delete_own_node(node_path.rpartition("/")[2])
            return Release.UNKNOWN
        return Release.RELEASED

    def _delete_own_node(self, prefix: str) -> None:
        """Delete this waiter's node from the queue of the lock.

        If the server does not answer, delete the node as soon as it answers again. The session
        lasts as long as the process, so a node that is not deleted would block the queue.

        prefix  the beginning of the node's name, or its whole name
        """

        def delete(timeout: float | None) -> None:
            for name in self._list_nodes(timeout):
                if name.startswith(prefix):
                    self._send_request(
                        partial(self.client.delete_async, f"{self.path}/{name}"), timeout
                    )

        def delete_when_possible() -> None:
            with suppress(Exception):  # the server deletes the node when the session ends
                delete(None)

        try:
            delete(self.ttl)
        except REQUEST_ERRORS:
            self.client.handler.spawn(delete_when_possible)

    def _list_nodes(self, timeout: float | None) -> list[str]:
        """Return the names of the nodes of the holder and all waiters, unsorted."""
        try:
            return list(
                self._send_request(partial(self.client.get_children_async, self.path), timeout)
            )
        except NoNodeError:  # the lock was never taken
            return []

    def _send_request(self, request: Callable[[], Any], timeout: float | None) -> Any:
        """Send a request to ZooKeeper, and return the reply.

        The request is repeated if the connection is lost, unless the session has ended.

        request  sends the request and returns kazoo's AsyncResult
        timeout  time limit in seconds, both for one try and for all; None for no limit
        """
        retry = KazooRetry(
            max_tries=-1,  # only the deadline limits the tries
            delay=0.05,
            max_delay=1.0,
            deadline=timeout,
            ignore_expire=False,
        )
        return retry(lambda: request().get(timeout=timeout))


def _get_sequence_number(node: str) -> str:
    """Return the ten digits that ZooKeeper appends to the name of a sequential node."""
    return node[-10:]


#: Held by the thread that connects. Otherwise many buyers at the same moment would each open a
#: session.
_connect_mutex = threading.Lock()


@cache
def _connect_once() -> Any:
    return connect(settings.ZOOKEEPER_HOSTS, ttl=settings.SHOP_LOCK_TTL)


def zookeeper_client() -> Any:
    """Return this process's client. The first call connects it.

    Raises Unavailable if another thread takes too long to connect, and LockBackendError if no
    ZooKeeper answers.
    """
    if not _connect_mutex.acquire(timeout=CONNECT_TIMEOUT_SECONDS):
        raise Unavailable("ZooKeeper does not answer; nothing was sold: retry with the same key")
    try:
        return _connect_once()
    finally:
        _connect_mutex.release()


def make_lock(attempt: Attempt) -> Lock:
    """Return a lock on this process's ZooKeeper session. Raises Unavailable or LockBackendError."""
    if not settings.ZOOKEEPER_HOSTS:
        raise Unavailable("there is no ZooKeeper: set ZOOKEEPER_HOSTS; nothing was sold")
    return ZookeeperLock(zookeeper_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


def buy(attempt: Attempt) -> Receipt:
    with hold_lock(make_lock(attempt)) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=150,
    title="ZooKeeper",
    article="A1",
    summary="First come, first served; a paused process loses its session, and the lock with it.",
    highlights=("self._wait_for_turn(node", "create_async("),
    buy=buy,
    needs="ZOOKEEPER_HOSTS",
    backend="zookeeper",
    renewed=True,
)
