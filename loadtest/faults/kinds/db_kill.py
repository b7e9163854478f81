"""`db-kill`: the database ends the holder's connection."""

import time

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import wait_for
from loadtest.faults.trial import Trial

KILL = """
    SELECT pid, pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'oversold-{}'
    AND state = 'idle in transaction'
"""
LEFT = "SELECT pid FROM pg_stat_activity WHERE pid IN ({})"
#: Only victims are inside a transaction when the fault is fired.
IDLE_IN_MARIADB = """
    SELECT process.id FROM information_schema.processlist process
    JOIN information_schema.innodb_trx ON trx_mysql_thread_id = process.id
    WHERE command = 'Sleep'
"""
LEFT_IN_MARIADB = "SELECT id FROM information_schema.processlist WHERE id IN ({})"
#: InnoDB shows its transactions as they were up to 100 ms ago.
INNODB_VIEW_SECONDS = 0.2
#: For a killed connection to end.
MARIADB_TIMEOUT_SECONDS = 5.0


class DbKillFault(Fault):
    """The database ends the connection of every victim, which is stopped inside its transaction.

    PostgreSQL by pg_terminate_backend, MariaDB by KILL.
    """

    name = "db-kill"
    title = "the database ends the holder's connection"
    grace = 0.5

    def fire(self) -> None:
        if self.testbed.mariadb is not None:
            self._kill_in_mariadb()
            return
        self.left = LEFT
        name = self.testbed.nodes[self.node].name
        self.killed = [pid for pid, has_ended in self.testbed.sql(KILL.format(name)) if has_ended]

    def _kill_in_mariadb(self) -> None:
        time.sleep(INNODB_VIEW_SECONDS)
        self.left = LEFT_IN_MARIADB
        self.killed = [connection for (connection,) in self.testbed.sql(IDLE_IN_MARIADB)]
        for connection in self.killed:
            self.testbed.sql(f"KILL CONNECTION {connection}")
        wait_for(lambda: not self._connections_left(), MARIADB_TIMEOUT_SECONDS)

    def _connections_left(self) -> list[object]:
        """Return the connections that were to end, and have not."""
        if not self.killed:
            return []
        return list(self.testbed.sql(self.left.format(",".join(map(str, self.killed)))))

    def prove(self) -> str:
        killed, victims = len(self.killed), len(self.trials)
        ended = f"{killed} connections were ended for {victims} victims"
        self.require(killed >= max(1, victims), ended)
        left = self._connections_left()
        self.require(not left, f"{len(left)} of these connections are still there")
        return f"{killed} connections of node A were ended in their transactions"

    def resume(self, trial: Trial) -> None:
        super().resume(trial)
        allowed = "unavailable"
        if trial.stop == "before_commit":  # it cannot know whether the COMMIT went through
            allowed = "unknown"
        first = trial.first_answer(10)
        if first == "sold":
            trial.miss("the victim sold: its connection was not ended")
        elif first != allowed:
            trial.wrong.append(f"the victim's first answer was {first}")
