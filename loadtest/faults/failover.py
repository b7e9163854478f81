"""failover: the replica is promoted without the lock."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from functools import partial

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, VICTIMS, Testbed
from loadtest.faults.trial import Trial, still_held
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

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.proxy = Proxy(testbed.address(testbed.main), name="replication")
        self.proxy.start()
        self.replica = self._replica(testbed, self.proxy)
        self.proxy.black_hole()

    def _replica(self, testbed: Testbed, proxy: Proxy) -> embedded.Valkey:
        """A replica that has caught up through `proxy`."""
        host, port = proxy.address.split(":")
        replica = embedded.Valkey(testbed.folder, replica_of=(host, int(port)))
        embedded.adopt(replica.start())
        testbed.valkeys.append(replica)
        self.require_soon(
            lambda: (
                testbed.ask(replica, "INFO", "replication").get("master_link_status") == "up"
                and not testbed.ask(replica, "INFO", "replication").get("master_sync_in_progress")
            ),
            "the replica does not catch up",
        )
        return replica

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.held = still_held(trials)
        testbed.main.stop(signal.SIGKILL)
        self.replica.promote()
        for proxy in testbed.redis:
            proxy.switch(testbed.address(self.replica))
        self._is_main(testbed)

    def _is_main(self, testbed: Testbed) -> None:
        testbed.valkeys.remove(self.replica)
        testbed.main = self.replica
        self.replica.replica_of = None  # if it is started again

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        role = testbed.ask(testbed.main, "INFO", "replication")["role"]
        self.require(role == "master", f"the replica is still a {role}")
        left = [trial.lock for trial in trials if trial.orphans()]
        self.require(not left, f"locks survived: {left}")
        self._is_used(testbed)
        return f"the replica is master and has none of the {len(self.held)} locks held before"

    def _is_used(self, testbed: Testbed) -> None:
        """Require that both nodes reach the new master."""
        mine = testbed.ask(testbed.main, "INFO", "server")["run_id"]
        for proxy in testbed.redis:
            self.require(measure.run_id(proxy) == mine, "a node was not sent to the new master")

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.proxy.stop()


class FailoverSentinel(Failover):
    """The same with three real Sentinels: they find the master dead and promote its replica, and
    the shop asks them for the master. Sentinels and replica reach the master through a proxy that
    drops replication only."""

    name = "failover@sentinel"
    title = "three Sentinels promote the replica without the lock"
    grace = 1.0

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.proxy = Proxy(testbed.address(testbed.main), name="master")
        self.proxy.start()
        self.replica = self._replica(testbed, self.proxy)
        sentinels = Sentinels(testbed.folder / "sentinels", self.proxy.port, testbed.log)
        testbed.sentinels = self.sentinels = sentinels
        for pid in sentinels.start():
            embedded.adopt(pid)
        sentinels.wait_until_ready()
        for node in (VICTIMS, RIVALS):
            testbed.restart(
                node,
                REDIS_SENTINELS=self.sentinels.urls,
                REDIS_SENTINEL_MASTER=MASTER,
            )
        self.proxy.black_hole_replication()

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.held = still_held(trials)
        testbed.main.stop(signal.SIGKILL)
        self.proxy.refuse()
        self.require_soon(
            lambda: self.sentinels.master() == testbed.address(self.replica),
            "the Sentinels promote nobody",
            20.0,
        )
        self._is_main(testbed)

    def _is_used(self, testbed: Testbed) -> None:
        """Both nodes say that they reach their Redis, and the old master is dead."""
        for node in (VICTIMS, RIVALS):
            shop = testbed.shop(node)
            self.require_soon(partial(_is_ready, shop), "a node finds no master")

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """The Sentinels stay until the sales are over, because the shop asks them."""

    def clean_up(self, testbed: Testbed) -> None:
        if testbed.sentinels is None:
            return
        testbed.sentinels.stop()
        testbed.sentinels = None
        self.proxy.stop()
        for node, proxy in enumerate(testbed.redis):
            proxy.switch(testbed.address(testbed.main))
            testbed.restart(node)


def _is_ready(shop: Shop) -> bool:
    try:
        return bool(shop.ready())
    except ShopUnreachable:
        return False
