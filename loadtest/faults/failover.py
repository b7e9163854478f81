"""failover, split-brain: the replica is promoted without the lock."""

import signal
from functools import partial

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, VICTIMS
from loadtest.stack.client import Shop, ShopUnreachable
from servers import embedded
from servers.proxy.proxy import Proxy
from servers.sentinels import MASTER, Sentinels


class Failover(Fault):
    """Replication is a black hole when the victim takes its lock. Then the master is killed, the
    replica promoted by a command, and everybody sent to it.

    Without the black hole nothing would be lost: on loopback the replica has the bytes at once.
    """

    name = "failover"
    title = "the replica is promoted without the lock"
    loses_promises = True
    grace = 0.8
    ttl = 5.0
    takes_the_lock = True

    def arm(self) -> None:
        self._replicate()
        self.proxy.black_hole()

    def _replicate(self) -> None:
        """Start a replica that has caught up through a proxy."""
        master = self.testbed.address(self.testbed.main)
        self.proxy = self.opened.enter_context(Proxy(master))
        host, port = self.proxy.address.split(":")
        self.replica = embedded.Valkey(self.testbed.folder, replica_of=(host, int(port)))
        embedded.adopt(self.replica.start())
        self.testbed.valkeys.append(self.replica)

        def has_caught_up() -> bool:
            info = measure.ask(self.replica, "INFO", "replication")
            return info.get("master_link_status") == "up" and not info["master_sync_in_progress"]

        self.require_soon(has_caught_up, "the replica does not catch up")

    def fire(self) -> None:
        self.held = self.count_held()
        self.testbed.main.stop(signal.SIGKILL)
        self.replica.promote()
        for proxy in self.testbed.redis:
            proxy.switch(self.testbed.address(self.replica))
        self.testbed.replace_main(self.replica)

    def prove(self) -> str:
        role = self.ask("INFO", "replication")["role"]
        self.require(role == "master", f"the replica is still a {role}")
        self.require_no_lock()
        self._is_used()
        return f"the replica is master and has none of the {self.held} locks held before"

    def _is_used(self) -> None:
        """Require that both nodes reach the new master."""
        mine = measure.run_id(self.testbed.main, 5.0)
        for proxy in self.testbed.redis:
            self.require(measure.run_id(proxy) == mine, "a node was not sent to the new master")


class FailoverSentinel(Failover):
    """The same with three real Sentinels: they find the master dead and promote its replica, and
    the shop asks them for the master. Sentinels and replica reach the master through a proxy that
    drops replication only."""

    name = "failover@sentinel"
    title = "three Sentinels promote the replica without the lock"
    grace = 1.0

    def arm(self) -> None:
        self._replicate()
        testbed = self.testbed
        sentinels = Sentinels(testbed.folder / "sentinels", self.proxy.port, testbed.log)
        self.sentinels = sentinels
        self.opened.callback(sentinels.stop)
        for pid in sentinels.start():
            embedded.adopt(pid)
        sentinels.wait_until_ready()
        for node in (VICTIMS, RIVALS):
            testbed.restart(node, REDIS_SENTINELS=sentinels.urls, REDIS_SENTINEL_MASTER=MASTER)
        self.proxy.black_hole_replication()

    def fire(self) -> None:
        self.held = self.count_held()
        self.testbed.main.stop(signal.SIGKILL)
        self.proxy.refuse()
        replica = self.testbed.address(self.replica)
        nobody = "the Sentinels promote nobody"
        self.require_soon(lambda: self.sentinels.master() == replica, nobody, 20.0)
        self.testbed.replace_main(self.replica)

    def _is_used(self) -> None:
        """Both nodes say that they reach their Redis, and the old master is dead."""
        for node in (VICTIMS, RIVALS):
            ready = partial(_is_ready, self.testbed.shop(node))
            self.require_soon(ready, "a node finds no master")

    def clean_up(self) -> None:
        """The Sentinels stay until the sales are over, because the shop asks them."""
        super().clean_up()
        for node, proxy in enumerate(self.testbed.redis):
            proxy.switch(self.testbed.address(self.testbed.main))
            self.testbed.restart(node)


def _is_ready(shop: Shop) -> bool:
    try:
        return bool(shop.ready())
    except ShopUnreachable:
        return False


class SplitBrain(Failover):
    """Replication is a black hole when the victim takes its lock. Then the replica is promoted, and
    node B uses it. Node A keeps the old master, which renews and releases as before: no holder
    can notice."""

    name = "split-brain"
    title = "two masters: the replica is promoted, and only node B follows"
    two_servers = True
    old: embedded.Valkey | None = None

    def fire(self) -> None:
        self.held = self.count_held()
        self.old = self.testbed.main
        self.replica.promote()
        self.testbed.redis[RIVALS].switch(self.testbed.address(self.replica))
        self.testbed.replace_main(self.replica)

    def prove(self) -> str:
        assert self.old is not None
        for node, server in ((VICTIMS, self.old), (RIVALS, self.testbed.main)):
            found = measure.ask(server, "INFO")
            reached = measure.run_id(self.testbed.redis[node])
            self.require(reached == found["run_id"], "a node does not have the Redis of its own")
            self.require(found["role"] == "master", f"a node has a {found['role']}")
        self.require_no_lock()
        return (
            "node A and node B have a Redis each, both with the role of master; that of node B has "
            f"none of the {self.held} locks held before"
        )

    def heal(self) -> None:
        """The victims have released on the old master, which is killed with its data."""
        self.testbed.redis[VICTIMS].switch(self.testbed.address(self.testbed.main))
        if self.old is not None:
            self.old.stop(signal.SIGKILL)  # SIGTERM would wait for its replica
