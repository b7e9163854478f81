"""A copy of a running PostgreSQL: an independent server, or a replica."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from psycopg.conninfo import make_conninfo

from servers.initdb import ProgramFailed, Programs
from servers.postgres import START_TIMEOUT_SECONDS, Postgres
from servers.server_errors import EmbeddedError
from servers.waiting import wait_for

PROMOTION_TIMEOUT_SECONDS = 20


class PostgresCopy(Postgres):
    """PostgreSQL on a copy of another server's data, made by pg_basebackup at the first start.

    data_folder     the data folder of the copy
    runtime_folder  a folder for the socket, as for Postgres
    source          the connection string of the other server (psycopg.conninfo.make_conninfo)
    as_replica      whether the copy is a replica of that server, until promote()
    """

    def __init__(
        self, data_folder: Path, *, runtime_folder: Path, source: str, as_replica: bool = False
    ) -> None:
        super().__init__(data_folder, runtime_folder=runtime_folder)
        self.source = source
        self.as_replica = as_replica

    @property
    def socket(self) -> Path:
        """The path of the running server's Unix socket."""
        return self.socket_folder() / ".s.PGSQL.5432"

    def promote(self) -> None:
        """Make a running replica an independent server. Raises psycopg.Error or EmbeddedError."""
        [[was_promoted]] = self.run_sql(f"SELECT pg_promote(true, {PROMOTION_TIMEOUT_SECONDS})")
        if not was_promoted:
            raise EmbeddedError(
                f"the replica was not promoted within {PROMOTION_TIMEOUT_SECONDS} s; see {self.log}"
            )

    def kill(self) -> None:
        """Kill the server without a checkpoint, and wait until its processes have ended.

        Raises EmbeddedError if some do not end.
        """
        os.kill(self.pid, signal.SIGKILL)
        self._wait_for_orphans()

    def wait_until_caught_up_with(self, primary: PostgresCopy) -> None:
        """Wait until this replica has replayed everything that `primary` has written so far.

        The replica is asked, because the primary's view of its replicas may be ten seconds old.
        Raises EmbeddedError if the replica takes longer than START_TIMEOUT_SECONDS.
        """
        [[written_position]] = primary.run_sql("SELECT pg_current_wal_lsn()")
        caught_up_query = f"SELECT pg_last_wal_replay_lsn() >= '{written_position}'::pg_lsn"
        if not wait_for(lambda: self.run_sql(caught_up_query)[0][0], START_TIMEOUT_SECONDS):
            raise EmbeddedError(f"the replica does not catch up; see {self.log}")

    def _create_data_folder(self, programs: Programs) -> None:
        """Copy the other server's data, at the first start. Raises EmbeddedError or OSError."""
        options = [
            f"--dbname={make_conninfo(self.source, user='postgres')}",
            f"--pgdata={self.data_folder}",
            "--checkpoint=fast",
            "--wal-method=stream",
            "--no-sync",
        ]
        if self.as_replica:
            options.append("--write-recovery-conf")
        try:
            programs.run("pg_basebackup", *options)
        except ProgramFailed as error:
            raise EmbeddedError(f"pg_basebackup made no copy of {self.source}: {error}") from error
        # pg_basebackup also copied the other server's log, and the lock of its socket.
        self.log.unlink(missing_ok=True)
        for socket_lock in self.data_folder.glob(".s.PGSQL.*"):
            socket_lock.unlink(missing_ok=True)
        with (self.data_folder / "postgresql.auto.conf").open("a") as settings:
            # Without fsync the copy starts seconds faster. A killed server still loses nothing.
            settings.write("fsync = off\n")
