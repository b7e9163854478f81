"""db-kill: PostgreSQL ends the holder's connection."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Testbed
from loadtest.faults.trial import Trial

KILL = """
    SELECT pid, pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'oversold-A'
    AND state = 'idle in transaction'
"""
LEFT = "SELECT pid FROM pg_stat_activity WHERE pid IN ({})"


class DbKill(Fault):
    """pg_terminate_backend for every victim, which is stopped inside its transaction."""

    name = "db-kill"
    title = "pg_terminate_backend of the holder"
    grace = 0.5

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.killed = [pid for pid, gone in testbed.sql(KILL) if gone]

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        self.require(
            len(self.killed) >= len(trials),
            f"{len(self.killed)} backends were ended for {len(trials)} victims",
        )
        left = testbed.sql(LEFT.format(",".join(map(str, self.killed))))
        self.require(not left, f"{len(left)} of these backends are still there")
        return f"{len(self.killed)} backends of node A were ended in their transactions"

    def resume(self, trial: Trial) -> None:
        trial.resume_victim()
        trial.resume_rivals()
        assert trial.victim is not None
        # A victim stopped before its COMMIT cannot know whether the COMMIT went through.
        allowed = {"unknown"} if trial.stop == "before_commit" else {"unavailable"}
        if trial.victim.join(10) and trial.victim.first == "sold":
            trial.miss("the victim sold: its backend was not ended")
        elif trial.victim.first not in allowed:
            trial.wrong.append(f"the victim's first answer was {trial.victim.first or 'none'}")
