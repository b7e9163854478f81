"""failover: the replica that takes over never heard of the lock."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, VICTIMS, Stage
from loadtest.faults.trial import Scene, still_held
from servers import embedded
from servers.proxy.proxy import Proxy
from servers.sentinels import MASTER, Sentinels


class Failover(Fault):
    """The replication link is a black hole when the victim takes its lock; then the master is
    killed, the replica promoted by hand, and everybody sent to it.

    Killing and promoting alone would not do: on loopback the bytes are with the replica already.
    """

    name = "failover"
    title = "the replica is promoted without the lock"
    grace = 0.8
    ttl = 5.0
    takes_the_lock = True

    def arm(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.link = Proxy(stage.address(stage.main), name="replication")
        self.link.start()
        self.replica = self._replica(stage, self.link)
        self.link.black_hole()

    def _replica(self, stage: Stage, link: Proxy) -> embedded.Valkey:
        """A replica that has caught up through `link`."""
        host, port = link.address.split(":")
        replica = embedded.Valkey(stage.folder, replica_of=(host, int(port)))
        embedded.adopt(replica.start())
        stage.valkeys.append(replica)
        self.require_soon(
            lambda: (
                stage.ask(replica, "INFO", "replication").get("master_link_status") == "up"
                and not stage.ask(replica, "INFO", "replication").get("master_sync_in_progress")
            ),
            "the replica does not catch up",
        )
        return replica

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.held = still_held(scenes)
        stage.main.stop(signal.SIGKILL)
        self.replica.promote()
        for way in stage.redis:
            way.switch(stage.address(self.replica))
        self._is_main(stage)

    def _is_main(self, stage: Stage) -> None:
        stage.valkeys.remove(self.replica)
        stage.main = self.replica
        self.replica.replica_of = None  # if it is started again

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        role = stage.ask(stage.main, "INFO", "replication")["role"]
        self.require(role == "master", f"the replica is a {role} still")
        left = [scene.lock for scene in scenes if scene.orphans()]
        self.require(not left, f"locks survived: {left}")
        return f"the replica is master and has none of the {len(self.held)} locks held before"

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.link.stop()


class FailoverSentinel(Failover):
    """The same with three real Sentinels: they find the master dead and promote its replica, and
    the shop asks them where to go. Sentinels and replica know the master by the address of a proxy,
    in which the replication alone is a black hole."""

    name = "failover@sentinel"
    title = "three Sentinels promote the replica without the lock"
    grace = 1.0

    def arm(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.link = Proxy(stage.address(stage.main), name="master")
        self.link.start()
        self.replica = self._replica(stage, self.link)
        sentinels = Sentinels(stage.folder / "sentinels", self.link.port, stage.log)
        stage.sentinels = self.sentinels = sentinels
        for pid in sentinels.start():
            embedded.adopt(pid)
        sentinels.wait_until_ready()
        for node in (VICTIMS, RIVALS):
            stage.restart(
                node,
                REDIS_SENTINELS=self.sentinels.urls,
                REDIS_SENTINEL_MASTER=MASTER,
            )
        self.link.black_hole_replication()

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.held = still_held(scenes)
        stage.main.stop(signal.SIGKILL)
        self.link.refuse()
        self.require_soon(
            lambda: self.sentinels.master() == stage.address(self.replica),
            "the Sentinels promote nobody",
            20.0,
        )
        self._is_main(stage)

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        """The Sentinels stay until the sale is over: the shop asks them."""

    def leave(self, stage: Stage) -> None:
        if stage.sentinels is None:
            return
        stage.sentinels.stop()
        stage.sentinels = None
        self.link.stop()
        for node, way in enumerate(stage.redis):
            way.switch(stage.address(stage.main))
            stage.restart(node)
