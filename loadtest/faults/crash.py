"""crash, db-kill: the holder's machine, or its connection to PostgreSQL, ends in an instant."""

from __future__ import annotations

from functools import partial

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import until
from loadtest.faults.trial import Trial

#: The point where a contender has read an expired time, and has not taken the lock over yet.
TAKEOVER = "setnx-timestamp:before_takeover"
KILL = """
    SELECT pid, pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'oversold-{}'
    AND state = 'idle in transaction'
"""
LEFT = "SELECT pid FROM pg_stat_activity WHERE pid IN ({})"


class Crash(Fault):
    """SIGKILL of every process of node A. If gunicorn's master were the only one killed, the worker
    would finish its request and release its lock."""

    name = "crash"
    title = "SIGKILL of the holder's node"
    asks_again = False
    recovery = True
    ran = 0

    def enter(self, trial: Trial) -> None:
        super().enter(trial)
        trial.start_rivals(stop=f"{TAKEOVER},after_read" if trial.strategy["takes_over"] else "")

    def fire(self) -> None:
        self.ran = len(self.testbed.pids(self.node))
        self.testbed.nodes[self.node].kill()

    def prove(self) -> str:
        """Measured by the pids that the node has now (a worker that was spared is among them) and
        those that the victims recorded, not by the pids that were killed."""
        gone = "a process of node A is left"
        self.require_soon(lambda: not self.testbed.pids(self.node), gone, 3.0)
        for trial in self.trials:
            pid = trial.victim_pid
            if pid is None or set(measure.states_of([pid]).values()) - measure.ENDED:
                trial.miss("the process that the victim was in still runs")
            trial.victim_was_cut_off()
        return f"the {self.ran} processes of node A are gone, its victims' connections were cut"

    def observed(self) -> str:
        return f"of the victims' locks, those that end had {self.measured_ttl()}"

    def act(self, trial: Trial) -> None:
        """Let the rivals buy. Where a rival takes an expired lock over, let two do so at once."""
        rivals, is_stopped_at = trial.rivals, self.testbed.is_stopped_at
        if not trial.strategy["takes_over"]:
            until(lambda: any(rival.sold_at for rival in rivals), self.grace)
            return
        both = until(lambda: all(is_stopped_at(r, TAKEOVER) for r in rivals), self.grace)
        self.require(both, f"{trial.lock}: the rivals do not find the lock expired")
        for rival in rivals:
            self.testbed.resume(rival, TAKEOVER)
            until(partial(is_stopped_at, rival, "after_read"), 0.3)
        trial.resume_rivals()

    def heal(self) -> None:
        self.testbed.restart(self.node)


class DbKill(Fault):
    """pg_terminate_backend for every victim, which is stopped inside its transaction."""

    name = "db-kill"
    title = "pg_terminate_backend of the holder"
    grace = 0.5

    def fire(self) -> None:
        name = self.testbed.nodes[self.node].name
        self.killed = [pid for pid, gone in self.testbed.sql(KILL.format(name)) if gone]

    def prove(self) -> str:
        killed, victims = len(self.killed), len(self.trials)
        enough = killed >= max(1, victims)
        self.require(enough, f"{killed} backends were ended for {victims} victims")
        left = self.testbed.sql(LEFT.format(",".join(map(str, self.killed))))
        self.require(not left, f"{len(left)} of these backends are still there")
        return f"{killed} backends of node A were ended in their transactions"

    def resume(self, trial: Trial) -> None:
        super().resume(trial)
        # A victim stopped before its COMMIT cannot know whether the COMMIT went through.
        allowed = "unknown" if trial.stop == "before_commit" else "unavailable"
        first = trial.first_answer(10)
        if first == "sold":
            trial.miss("the victim sold: its backend was not ended")
        elif first != allowed:
            trial.wrong.append(f"the victim's first answer was {first}")
