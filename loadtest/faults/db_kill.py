"""db-kill: PostgreSQL ends the holder's connection."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Stage
from loadtest.faults.trial import Scene

KILL = """
    SELECT pid, pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE application_name = 'oversold-A' AND state = 'idle in transaction'
"""


class DbKill(Fault):
    """pg_terminate_backend of every victim, which stands in its transaction."""

    name = "db-kill"
    title = "pg_terminate_backend of the holder"
    grace = 0.5

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.killed = [pid for pid, gone in stage.sql(KILL) if gone]

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        self.require(
            len(self.killed) >= len(scenes),
            f"{len(self.killed)} backends were ended for {len(scenes)} victims",
        )
        return f"{len(self.killed)} backends of node A were ended in their transactions"

    def part(self, scene: Scene) -> None:
        scene.victim_leaves()
        scene.rivals_leave()
        assert scene.victim is not None
        # Whoever stood before the commit cannot tell whether it went through.
        allowed = {"unknown"} if scene.stop == "before_commit" else {"unavailable"}
        if not scene.victim.join(10) or scene.victim.first not in allowed:
            scene.broke(f"the victim was told {scene.victim.first or 'nothing'} at first")
