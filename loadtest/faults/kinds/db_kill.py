"""`db-kill`: PostgreSQL ends the holder's connection."""

from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial

KILL = """
    SELECT pid, pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'oversold-{}'
    AND state = 'idle in transaction'
"""
LEFT = "SELECT pid FROM pg_stat_activity WHERE pid IN ({})"


class DbKillFault(Fault):
    """pg_terminate_backend for every victim, which is stopped inside its transaction."""

    name = "db-kill"
    title = "pg_terminate_backend of the holder"
    grace = 0.5

    def fire(self) -> None:
        name = self.testbed.nodes[self.node].name
        self.killed = [pid for pid, has_ended in self.testbed.sql(KILL.format(name)) if has_ended]

    def prove(self) -> str:
        killed, victims = len(self.killed), len(self.trials)
        ended = f"{killed} backends were ended for {victims} victims"
        self.require(killed >= max(1, victims), ended)
        left = self.testbed.sql(LEFT.format(",".join(map(str, self.killed))))
        self.require(not left, f"{len(left)} of these backends are still there")
        return f"{killed} backends of node A were ended in their transactions"

    def resume(self, trial: Trial) -> None:
        super().resume(trial)
        allowed = "unavailable"
        if trial.stop == "before_commit":  # it cannot know whether the COMMIT went through
            allowed = "unknown"
        first = trial.first_answer(10)
        if first == "sold":
            trial.miss("the victim sold: its backend was not ended")
        elif first != allowed:
            trial.wrong.append(f"the victim's first answer was {first}")
