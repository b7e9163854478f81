"""make doctor: what this machine has for the demo, what it lacks, and what to do about that.

    make doctor, or python3 -m servers.doctor

It needs nothing but Python; with .venv there it also starts PostgreSQL and Valkey and asks them.
Exit code 0: ready. 1: it says what to do next.
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
from typing import Iterator, NamedTuple  # noqa: UP035  (an old Python has to read this)

ROOT = Path(__file__).resolve().parent.parent
LOCK = "tools/requirements/shop.lock"
OLDEST, NEWEST = (3, 11), (3, 13)
MB = 1024 * 1024
#: Megabytes.
LEAST_DISK = 700
#: A package of the lock file that every machine needs: those behind a `;` are for some.
PIN = re.compile(r"^([\w.-]+)==([\w.!+-]+) *\\?$", re.MULTILINE)


class Diagnosis(NamedTuple):
    """One line. `todo` says what has to be done first, if anything."""

    name: str
    says: str
    todo: str = ""


def main() -> int:
    """Print every finding, and what to do next. Returns the exit code."""
    python = ROOT / ".venv" / "bin" / "python"
    if sys.prefix == sys.base_prefix and python.exists():
        os.chdir(ROOT)
        os.execv(str(python), [str(python), "-m", "servers.doctor"])
    todo = []
    for check in (machine, python_itself, installed, room, servers, other_databases):
        for finding in check():
            mark = "NO" if finding.todo else "ok"
            print(f"{mark:3} {finding.name:16} {finding.says}", flush=True)
            if finding.todo and finding.todo not in todo:
                todo.append(finding.todo)
    if todo:
        print("\nNOT READY. Do this, then make doctor again:")
        print("\n".join(f"  {number}. {step}" for number, step in enumerate(todo, 1)))
        return 1
    print("\nREADY: make demo")
    return 0


def machine() -> Iterator[Diagnosis]:
    """Check system and processor: the wheels of the servers exist for some only."""
    system, processor = platform.system(), platform.machine().lower()
    libc = "".join(platform.libc_ver())
    is_wsl = "microsoft" in platform.release().lower()
    says = " ".join(filter(None, (system, processor, libc)))
    if is_wsl:
        says += " in WSL"
    yield Diagnosis("system", says, _no_wheels(system, processor, libc))
    if is_wsl and str(ROOT).startswith("/mnt/"):
        todo = "move the checkout into WSL's own file system, as in ~/oversold"
        yield Diagnosis("file system", f"{ROOT} is Windows's: PostgreSQL cannot use it", todo)


def _no_wheels(system: str, processor: str, libc: str) -> str:
    """Return what to do if there are no wheels of PostgreSQL and Valkey, or nothing."""
    if system == "Windows":
        return "use WSL2 (wsl --install), or Docker: docker compose up"
    if system == "Linux" and not libc.startswith("glibc"):
        return "use a Linux with glibc, not musl (Debian, Ubuntu, Fedora), or docker compose up"
    if system in ("Linux", "Darwin") and processor in ("x86_64", "amd64", "arm64", "aarch64"):
        return ""
    return "use Linux or macOS on x86-64 or ARM64, or servers of your own: DATABASE_URL, REDIS_URL"


def python_itself() -> Iterator[Diagnosis]:
    version = platform.python_version()
    if sys.version_info[:2] > NEWEST:
        version += ": newer than was tried; wheels may be missing"
    todo = ""
    if sys.version_info < OLDEST:
        todo = "install Python 3.11 or newer; then make PYTHON=python3.12"
    yield Diagnosis("Python", version, todo)


def installed() -> Iterator[Diagnosis]:
    """Check that the packages of the lock file are installed."""
    pins = dict(PIN.findall((ROOT / LOCK).read_text(encoding="utf-8")))
    lacking = [name for name, version in pins.items() if _version(name) != version]
    if sys.prefix == sys.base_prefix:
        yield Diagnosis("packages", "nothing is installed yet", "make install")
    elif lacking:
        says = f"{len(lacking)} of {len(pins)} are missing or of another version: {lacking[0]} ..."
        yield Diagnosis("packages", says, "make clean, then make install")
    else:
        yield Diagnosis("packages", f"all {len(pins)} of {LOCK}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def room() -> Iterator[Diagnosis]:
    """Check the disk space for .venv, the data of PostgreSQL and some results."""
    free = shutil.disk_usage(ROOT).free // MB
    todo = ""
    if free < LEAST_DISK:
        todo = f"free some disk space: {LEAST_DISK} MB are needed"
    yield Diagnosis("disk", f"{free} MB free", todo)


def servers() -> Iterator[Diagnosis]:
    """Start PostgreSQL and Valkey as the commands do, and ask them; or ask those of the URLs."""
    if sys.prefix == sys.base_prefix:
        return
    began = time.monotonic()
    try:
        from servers import embedded, postgres, valkey

        embedded.provide_urls()
    except Exception as error:
        yield Diagnosis("PostgreSQL", *_refused(error))
        return
    for name, ask in (("PostgreSQL", postgres.version), ("Valkey or Redis", valkey.version)):
        try:
            yield Diagnosis(name, f"{ask()} answers, {time.monotonic() - began:.1f} s")
        except Exception as error:
            yield Diagnosis(name, *_refused(error))
    embedded.detach()


def other_databases() -> Iterator[Diagnosis]:
    """Name what a comparison with MariaDB lacks. Nothing else needs it."""
    if sys.prefix == sys.base_prefix:
        return
    from servers import mariadb, mysql_client

    client_version = _version("PyMySQL")
    missing = []
    if not mariadb.is_installed():
        missing.append(mariadb.MISSING)
    if client_version is None:
        missing.append(mysql_client.MISSING)
    says = f"PyMySQL {client_version}, {mariadb.server_path()}"
    if missing:
        says = f"absent, and only comparisons need it: {'; '.join(missing)}"
    yield Diagnosis("MariaDB", says)


def _refused(error: Exception) -> tuple[str, str]:
    says = str(error).replace("\n", "\n" + " " * 21)
    if isinstance(error, ImportError):
        return f"not installed ({says})", "make clean, then make install"
    return says, "do what the message about the servers says"


if __name__ == "__main__":
    sys.exit(main())
