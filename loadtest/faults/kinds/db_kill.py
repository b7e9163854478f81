"""`db-kill`: the database ends the holder's connection.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import time

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import ANSWER_TIMEOUT_SECONDS, wait_for
from loadtest.faults.trial import Trial

#: Ends the connections of one node that are idle in a transaction. The node's name replaces `{}`.
END_BACKENDS_SQL = """
    SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'oversold-{}'
    AND state = 'idle in transaction'
"""
#: Waits until the backends that END_BACKENDS_SQL signalled have ended, at most 5 s for each.
AWAIT_BACKENDS_SQL = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid IN ({})
"""
#: Selects the given backends that still exist.
REMAINING_BACKENDS_SQL = "SELECT pid FROM pg_stat_activity WHERE pid IN ({})"
#: Selects the connections that are idle in a transaction. These are the victims' connections,
#: because no other buyer is in a transaction when the fault fires.
IDLE_IN_MARIADB_SQL = """
    SELECT process.id FROM information_schema.processlist process
    JOIN information_schema.innodb_trx ON trx_mysql_thread_id = process.id
    WHERE command = 'Sleep'
"""
#: Selects the given connections that still exist.
REMAINING_IN_MARIADB_SQL = "SELECT id FROM information_schema.processlist WHERE id IN ({})"
#: How long to wait before reading InnoDB's list of transactions, which may be 100 ms old.
INNODB_VIEW_WAIT_SECONDS = 0.2
#: How long to wait until killed connections have ended.
MARIADB_TIMEOUT_SECONDS = 5.0


class DbKillFault(Fault):
    """The database ends the connection of every victim while the victim is in its transaction.

    PostgreSQL ends connections by pg_terminate_backend, MariaDB by KILL.
    """

    name = "db-kill"
    title = "the database ends the holder's connection"
    # A short time is enough: a lock in the database is free when its holder's connection has ended.
    rival_timeout_seconds = 0.5
    ttl = 5.0  # no lock expires before its holder's connection has ended

    def fire(self) -> None:
        """End the connections of the victims."""
        if self.testbed.mariadb is None:
            self._terminate_in_postgres()
        else:
            self._kill_in_mariadb()

    def _terminate_in_postgres(self) -> None:
        """End the node's connections that are in a transaction, and wait until they have ended."""
        self.remaining_ids_sql = REMAINING_BACKENDS_SQL
        backends = self.testbed.run_sql(END_BACKENDS_SQL.format(self.node_name))
        self.ended_ids = [pid for pid, was_signalled in backends if was_signalled]
        if self.ended_ids:
            self.testbed.run_sql(AWAIT_BACKENDS_SQL.format(self._ended_ids_for_sql))

    def _kill_in_mariadb(self) -> None:
        """End the connections that are in a transaction, and wait until they have ended."""
        # The list of transactions may be old. After this pause it has the victims' transactions.
        time.sleep(INNODB_VIEW_WAIT_SECONDS)
        self.remaining_ids_sql = REMAINING_IN_MARIADB_SQL
        self.ended_ids = [connection for (connection,) in self.testbed.run_sql(IDLE_IN_MARIADB_SQL)]
        for connection in self.ended_ids:
            self.testbed.run_sql(f"KILL CONNECTION {connection}")
        wait_for(lambda: not self._find_remaining_connections(), MARIADB_TIMEOUT_SECONDS)

    def _find_remaining_connections(self) -> list[object]:
        """Return a row for each connection that the fault has ended but that still exists."""
        if not self.ended_ids:
            return []
        return list(self.testbed.run_sql(self.remaining_ids_sql.format(self._ended_ids_for_sql)))

    @property
    def _ended_ids_for_sql(self) -> str:
        """The ids of the ended connections, separated by commas."""
        return ",".join(map(str, self.ended_ids))

    def prove(self) -> str:
        """Prove that a connection was ended for each victim, and that none of them is left."""
        ended_count = len(self.ended_ids)
        victim_count = len(self.trials)
        message = f"{ended_count} connections were ended for {victim_count} victims"
        # `make chaos` injects this fault without trials. Then one ended connection is enough.
        self.require(ended_count >= max(1, victim_count), message)
        remaining_connections = self._find_remaining_connections()
        message = f"{len(remaining_connections)} of these connections still exist"
        self.require(not remaining_connections, message)
        return (
            f"{ended_count} connections of node {self.node_name} were ended in their transactions"
        )

    def resume(self, trial: Trial) -> None:
        """Resume the buyers, and check the outcome of the victim's first request."""
        super().resume(trial)
        expected_outcome = "unavailable"
        if trial.victim_stop_point == "before_commit":
            expected_outcome = "unknown"  # the shop cannot know whether the COMMIT took effect
        first_outcome = trial.wait_for_first_outcome(ANSWER_TIMEOUT_SECONDS)
        if first_outcome == "sold":
            trial.mark_inconclusive("the victim was answered sold, so its connection had not ended")
        elif first_outcome != expected_outcome:
            trial.problems.append(
                f"the victim's first answer was {first_outcome}, not {expected_outcome}"
            )
