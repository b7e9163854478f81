"""make doctor: a report on what the demo needs, what this machine lacks, and what to do.

    make doctor, or python3 -m servers.doctor

It needs only Python. If .venv exists, it also starts PostgreSQL and Valkey and reports their
versions. The exit code is 0 if the machine is ready. It is 1 if something is missing; the report
then says what to do.
"""

# This file must parse on old Pythons, because it reports that Python is too old: 3.8 cannot
# evaluate `str | None`.
from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Iterator, NamedTuple  # noqa: UP035  (an old Python must be able to import this)

ROOT = Path(__file__).resolve().parent.parent
LOCK_FILE = "tools/requirements/shop.lock"
OLDEST_PYTHON = (3, 11)
NEWEST_TESTED_PYTHON = (3, 13)
MB = 1024 * 1024
#: Space for .venv, the data of PostgreSQL and some results.
MIN_FREE_DISK_MB = 700
#: Columns of a line of the report before its message.
MESSAGE_INDENT = 21
#: A line of the lock file with a package that every machine needs. A line with a `;` is for certain
#: machines only, and does not match.
PIN = re.compile(r"^([\w.-]+)==([\w.!+-]+) *\\?$", re.MULTILINE)


class Diagnosis(NamedTuple):
    """One line of the report. `todo` says what to do; it is empty if nothing is missing."""

    name: str
    message: str
    todo: str = ""


def main() -> int:
    """Print every diagnosis and what to do next. Return the exit code.

    If .venv exists, but this process runs outside of it, the process first restarts itself with
    the Python of .venv.
    """
    python = ROOT / ".venv" / "bin" / "python"
    if not _is_in_venv() and python.exists():
        os.chdir(ROOT)
        os.execv(str(python), [str(python), "-m", "servers.doctor"])
    todo = []
    for check in (
        check_system,
        check_python,
        check_packages,
        check_disk_space,
        check_servers,
        check_other_databases,
    ):
        for diagnosis in check():
            mark = "NO" if diagnosis.todo else "ok"
            print(f"{mark:3} {diagnosis.name:16} {diagnosis.message}", flush=True)
            if diagnosis.todo and diagnosis.todo not in todo:
                todo.append(diagnosis.todo)
    if todo:
        print("\nNOT READY. Do this, then run `make doctor` again:")
        print("\n".join(f"  {number}. {step}" for number, step in enumerate(todo, 1)))
        return 1
    print("\nREADY: run `make demo`")
    return 0


def _is_in_venv() -> bool:
    """Return whether this process runs in a virtual environment, such as .venv."""
    return sys.prefix != sys.base_prefix


def check_system() -> Iterator[Diagnosis]:
    """Check that the wheels of PostgreSQL and Valkey exist for this system and processor.

    In WSL, also check that the checkout is not on a Windows drive.
    """
    system, processor = platform.system(), platform.machine().lower()
    libc = "".join(platform.libc_ver())  # such as "glibc2.36"; empty with another C library
    is_wsl = "microsoft" in platform.release().lower()
    message = " ".join(filter(None, (system, processor, libc)))
    if is_wsl:
        message += " in WSL"
    yield Diagnosis("system", message, _missing_wheels_advice(system, processor, libc))
    if is_wsl and str(ROOT).startswith("/mnt/"):
        todo = "move the checkout into the file system of WSL, for example to ~/oversold"
        message = f"{ROOT} is on a Windows drive, which PostgreSQL cannot use"
        yield Diagnosis("file system", message, todo)


def _missing_wheels_advice(system: str, processor: str, libc: str) -> str:
    """Return what to do if PostgreSQL and Valkey have no wheels for this system.

    Return an empty text if they have wheels.
    """
    if system == "Windows":
        return "use WSL2 (wsl --install), or Docker: docker compose up"
    if system == "Linux" and not libc.startswith("glibc"):
        return "use a Linux with glibc, not musl (Debian, Ubuntu, Fedora), or docker compose up"
    if system in ("Linux", "Darwin") and processor in ("x86_64", "amd64", "arm64", "aarch64"):
        return ""
    return "use Linux or macOS on x86-64 or ARM64, or servers of your own: DATABASE_URL, REDIS_URL"


def check_python() -> Iterator[Diagnosis]:
    """Check the version of Python."""
    version = platform.python_version()
    if sys.version_info[:2] > NEWEST_TESTED_PYTHON:
        version += ": newer than the tested versions; wheels may be missing"
    todo = ""
    if sys.version_info < OLDEST_PYTHON:
        todo = "install Python 3.11 or newer, and use it: make install PYTHON=python3.11"
    yield Diagnosis("Python", version, todo)


def check_packages() -> Iterator[Diagnosis]:
    """Check that the packages of the lock file are installed in the pinned versions."""
    if not _is_in_venv():  # .venv does not exist, or main() would have switched to its Python
        yield Diagnosis("packages", "nothing is installed yet", "make install")
        return
    pins = dict(PIN.findall((ROOT / LOCK_FILE).read_text(encoding="utf-8")))
    missing = [name for name, version in pins.items() if _read_installed_version(name) != version]
    if missing:
        message = (
            f"{len(missing)} of {len(pins)} are missing or of another version: {missing[0]} ..."
        )
        yield Diagnosis("packages", message, "make clean, then make install")
    else:
        yield Diagnosis("packages", f"all {len(pins)} of {LOCK_FILE}")


def _read_installed_version(name: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_disk_space() -> Iterator[Diagnosis]:
    """Check that MIN_FREE_DISK_MB are free on the disk of the checkout."""
    free_mb = shutil.disk_usage(ROOT).free // MB
    todo = ""
    if free_mb < MIN_FREE_DISK_MB:
        todo = f"free some disk space: {MIN_FREE_DISK_MB} MB are needed"
    yield Diagnosis("disk", f"{free_mb} MB free", todo)


def check_servers() -> Iterator[Diagnosis]:
    """Report the versions of PostgreSQL and Valkey, and how many seconds they took to answer.

    The embedded servers are started if no variable has the address of a server. A server whose
    address is in a variable other than DATABASE_URL and REDIS_URL, such as REDIS_SENTINELS, is not
    checked. A database other than PostgreSQL is not checked either. Without a virtual environment
    the report is empty, because the packages are missing.
    """
    if not _is_in_venv():
        return
    started_at = time.monotonic()
    try:
        from servers import embedded, postgres, valkey  # fails if a package is missing

        embedded.provide_urls()
    except Exception as error:
        yield Diagnosis("servers", *_describe_failure(error))
        return
    for name, variable, read_version in (
        ("PostgreSQL", "DATABASE_URL", postgres.read_version),
        ("Valkey or Redis", "REDIS_URL", valkey.read_version),
    ):
        skip_reason = _find_skip_reason(variable)
        if skip_reason:
            yield Diagnosis(name, f"not checked: {skip_reason}")
            continue
        try:
            yield Diagnosis(
                name, f"{read_version()} answers, {time.monotonic() - started_at:.1f} s"
            )
        except Exception as error:
            yield Diagnosis(name, *_describe_failure(error))
    embedded.detach()  # stops the servers, unless another process uses them


def _find_skip_reason(variable: str) -> str:
    """Return why the server in this variable is not checked; an empty text if it is checked."""
    url = os.environ.get(variable, "")
    if not url:  # DATABASE_URL_FILE, REDIS_URL_FILE or REDIS_SENTINELS is set
        return f"{variable} is not set, because another variable has the server's address"
    scheme = url.partition(":")[0]
    if scheme in ("mysql", "sqlite"):
        return f"{variable} is the URL of a {scheme} database"
    return ""


def check_other_databases() -> Iterator[Diagnosis]:
    """Report whether MariaDB and its client are installed, without requiring them.

    Only a comparison of databases needs them. Without a virtual environment the report is empty.
    """
    if not _is_in_venv():
        return
    from servers import mariadb

    client_version = _read_installed_version("PyMySQL")
    missing = []
    if not mariadb.is_installed():
        missing.append(mariadb.MISSING)
    if client_version is None:
        missing.append(mariadb.CLIENT_MISSING)
    message = f"PyMySQL {client_version}, {mariadb.find_server_path()}"
    if missing:
        message = f"missing, but only a comparison of databases needs it: {'; '.join(missing)}"
    yield Diagnosis("MariaDB", message)


def _describe_failure(error: Exception) -> tuple[str, str]:
    """Return the `message` and the `todo` of a Diagnosis for servers that raised this error."""
    message = str(error).replace("\n", "\n" + " " * MESSAGE_INDENT)
    if isinstance(error, ImportError):
        return f"not installed ({message})", "make clean, then make install"
    return message, "follow the advice in the message about the servers"


if __name__ == "__main__":
    sys.exit(main())
