"""The locks' server and its replica, for schedules with a restart or a failover of the server."""

import signal
from collections.abc import Mapping
from pathlib import Path

import redis
from django.conf import settings

from servers.valkey import Valkey, client_at
from servers.waiting import wait_for

#: An address at which no server listens. A replica of this address gets no more writes.
NO_SERVER = ("127.0.0.1", "1")
#: How long to wait until a replica has synchronized.
SYNCHRONIZATION_TIMEOUT_SECONDS = 10.0
#: How long to wait until a buyer waits in the queue of RedisLock.
QUEUE_TIMEOUT_SECONDS = 10.0


class LockServers:
    """The locks' server. After a failover, a replica answers at the server's address.

    Args:
        main: The locks' server, which is running.
        folder: The working directory of the replica.
    """

    def __init__(self, main: Valkey, folder: Path) -> None:
        self._main = main
        self._folder = folder
        self._replica: Valkey | None = None
        self._has_failed_over = False

    def prepare(self, *, with_replica: bool) -> None:
        """Delete all keys before a schedule. An earlier schedule may have left a lock.

        with_replica  whether to start a replica for a failover. The replica synchronizes while the
                      server has no key, and is then cut off. So it never receives a lock
        """
        with client_at(self._main.port) as client:
            client.flushall()
        if with_replica:
            self._replica = Valkey(self._folder, replica_of=("127.0.0.1", self._main.port))
            self._replica.start()
            self._cut_off_when_synchronized(self._replica)

    def _cut_off_when_synchronized(self, replica: Valkey) -> None:
        """Wait until the replica has synchronized, then end its link to the server."""
        with client_at(replica.port) as client:
            is_synchronized = wait_for(
                lambda: client.info("replication")["master_link_status"] == "up",
                SYNCHRONIZATION_TIMEOUT_SECONDS,
            )
            assert is_synchronized, "the replica does not synchronize"
            client.replicaof(*NO_SERVER)

    def wait_for_queued_waiter(self) -> bool:
        """Wait until a buyer waits in RedisLock's queue. Return False after QUEUE_TIMEOUT_SECONDS.

        A buyer in the queue sends no further command before the lock is granted to it.
        """
        with redis.Redis.from_url(settings.REDIS_LOCKS_URL) as client:
            # The key `lock:NAME:places` is the queue of a lock.
            return wait_for(lambda: list(client.scan_iter("lock:*:places")), QUEUE_TIMEOUT_SECONDS)

    def restart_empty(self) -> None:
        """Kill the server and start it again. It stores nothing on disk, so every lock is lost."""
        self._main.stop(signal.SIGKILL)
        self._main.start()

    def fail_over(self) -> None:
        """Kill the server, promote the replica, and let it answer at the server's address."""
        assert self._replica is not None
        self._main.stop(signal.SIGKILL)
        self._has_failed_over = True
        self._replica.promote()
        with client_at(self._replica.port) as client:
            client.config_set("port", self._main.port)

    def restore(self) -> None:
        """Stop the replica, if there is one, and start the server again after a failover."""
        if self._replica is not None:
            self._replica.stop()
            self._replica = None
        if self._has_failed_over:
            self._main.start()
            self._has_failed_over = False

    def find_owner(self, buyers_by_token: Mapping[str, str]) -> str:
        """Return the buyer whose token is stored on the server; empty if the lock is free.

        The name of the lock's key differs between the strategies, so all strings are compared.

        buyers_by_token  the token of each lock that was acquired -> the buyer who acquired it
        """
        with redis.Redis.from_url(settings.REDIS_LOCKS_URL, decode_responses=True) as client:
            stored_texts = [client.get(key) for key in client.scan_iter(_type="string")]
        owners = [buyers_by_token[str(text)] for text in stored_texts if text in buyers_by_token]
        return "".join(owners)
