"""split-brain: the replica is promoted, and only one node learns of it."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from loadtest.faults import measure
from loadtest.faults.failover import Failover
from loadtest.faults.testbed import RIVALS, VICTIMS, Testbed
from loadtest.faults.trial import Trial, still_held
from servers import embedded


class SplitBrain(Failover):
    """Replication is a black hole when the victim takes its lock. Then the replica is promoted, and
    node B uses it. Node A keeps the old master, which renews and releases as before: no holder
    can notice."""

    name = "split-brain"
    title = "two masters: the replica is promoted, and only node B follows"
    two_servers = True

    def __init__(self) -> None:
        super().__init__()
        self.old: embedded.Valkey | None = None

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.held = still_held(trials)
        self.old = testbed.main
        self.replica.promote()
        testbed.redis[RIVALS].switch(testbed.address(self.replica))
        self._is_main(testbed)

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        assert self.old is not None
        for node, server in ((VICTIMS, self.old), (RIVALS, testbed.main)):
            found = testbed.ask(server, "INFO")
            reached = measure.run_id(testbed.redis[node])
            self.require(reached == found["run_id"], "a node does not have the Redis of its own")
            self.require(found["role"] == "master", f"a node has a {found['role']}")
        left = [trial.lock for trial in trials if trial.orphans()]
        self.require(not left, f"locks reached the replica: {left}")
        return (
            "node A and node B have a Redis each, both with the role of master; that of node B has "
            f"none of the {len(self.held)} locks held before"
        )

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """The victims have released on the old master, which is killed with its data."""
        testbed.redis[VICTIMS].switch(testbed.address(testbed.main))
        if self.old is not None:
            self.old.stop(signal.SIGKILL)  # SIGTERM would wait for its replica
        super().heal(testbed, trials)
