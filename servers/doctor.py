"""make doctor: what this machine has for the demo, what it lacks, and what to do about that.

    make doctor, or python3 -m servers.doctor

It needs nothing but Python; with .venv there it also starts PostgreSQL and Valkey and asks them.
Exit code 0: ready. 1: it says what to do next.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Iterator, NamedTuple  # noqa: UP035  (an old Python has to read this)

ROOT = Path(__file__).resolve().parent.parent
LOCK = "tools/requirements/shop.lock"
OLDEST, NEWEST = (3, 11), (3, 13)
#: What .venv, the data of PostgreSQL and some results take.
MB = 1024 * 1024
LEAST_DISK, LEAST_MEMORY = 700 * MB, 500 * MB
#: Where make serve listens, if it can.
PORTS = {8000: "the page", 8089: "Locust"}
#: A package of the lock file that every machine needs: those behind a `;` are for some.
PIN = re.compile(r"^([\w.-]+)==([\w.!+-]+) *\\?$", re.MULTILINE)
#: What only some parts need: a program, or a file.
OPTIONAL = {
    "make": "the commands of the README; without it see their lines in the Makefile",
    "git": "a clone; a ZIP of the project does as well",
    "docker compose": "the shop in containers",
    "java": "the strategy zookeeper",
    "/usr/share/java/zookeeper.jar": "the strategy zookeeper",
    "redis-server": "the locks' tests on Redis; Valkey comes with the wheels",
    "chromium": "the tests of the page, make screenshots",
}


class Finding(NamedTuple):
    """One line. `todo` says what has to be done first; a `note` does not stop anything."""

    name: str
    says: str
    todo: str = ""
    note: bool = False


def main() -> int:
    """Print every finding, and what to do next. Returns the exit code."""
    python = ROOT / ".venv" / "bin" / "python"
    if sys.prefix == sys.base_prefix and python.exists():
        os.chdir(ROOT)
        os.execv(str(python), [str(python), "-m", "servers.doctor"])
    todo = []
    for check in (machine, python_itself, installed, folders, room, ports, servers, optional):
        for found in check():
            state = "NO" if found.todo else "-" if found.note else "ok"
            print(f"{state:3} {found.name:16} {found.says}", flush=True)
            if found.todo and found.todo not in todo:
                todo.append(found.todo)
    if todo:
        print("\nNOT READY. Do this, then make doctor again:")
        print("\n".join(f"  {number}. {what}" for number, what in enumerate(todo, 1)))
        return 1
    print("\nREADY: make demo")
    return 0


def machine() -> Iterator[Finding]:
    """The system and the processor: the wheels of the servers exist for some only."""
    system, processor = platform.system(), platform.machine().lower()
    libc = "".join(platform.libc_ver())
    release = platform.release()
    says = " ".join(filter(None, (system, processor, libc)))
    wsl = "microsoft" in release.lower()
    yield Finding("system", says + (" in WSL" if wsl else ""), _no_wheels(system, processor, libc))
    if wsl and str(ROOT).startswith("/mnt/"):
        todo = "move the checkout into WSL's own file system, as in ~/oversold"
        yield Finding("file system", f"{ROOT} is Windows's: PostgreSQL cannot use it", todo)


def _no_wheels(system: str, processor: str, libc: str) -> str:
    """What to do where there are no wheels of PostgreSQL and Valkey; empty where there are."""
    if system == "Windows":
        return "use WSL2 (wsl --install), or Docker: docker compose up"
    if system == "Linux" and not libc.startswith("glibc"):
        return "use a Linux with glibc, not musl (Debian, Ubuntu, Fedora), or docker compose up"
    if system not in ("Linux", "Darwin") or processor not in (
        "x86_64",
        "amd64",
        "arm64",
        "aarch64",
    ):
        return (
            "use Linux or macOS on x86-64 or ARM64, or servers of your own: DATABASE_URL, REDIS_URL"
        )
    return ""


def python_itself() -> Iterator[Finding]:
    version = platform.python_version()
    if sys.version_info < OLDEST:
        todo = "install Python 3.11 or newer; then make PYTHON=python3.12"
        yield Finding("Python", version, todo)
    elif sys.version_info[:2] > NEWEST:
        yield Finding(
            "Python", f"{version}: newer than was tried; wheels may be missing", note=True
        )
    else:
        yield Finding("Python", version)
    if sys.prefix == sys.base_prefix:
        there = all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))
        todo = "" if there else "install Python's venv module: apt-get install python3-venv"
        yield Finding("module venv", "there" if there else "not there", todo)


def installed() -> Iterator[Finding]:
    """Whether what the lock file names is installed."""
    try:
        pins = dict(PIN.findall((ROOT / LOCK).read_text(encoding="utf-8")))
    except OSError:
        yield Finding("packages", f"{LOCK} is missing", "take a whole copy of the project")
        return
    lacking = [name for name, version in pins.items() if _version(name) != version]
    if sys.prefix == sys.base_prefix:
        yield Finding("packages", "nothing is installed yet", "make install")
    elif lacking:
        says = f"{len(lacking)} of {len(pins)} are missing or of another version: {lacking[0]} ..."
        yield Finding("packages", says, "make clean, then make install")
    else:
        yield Finding("packages", f"all {len(pins)} of {LOCK}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def folders() -> Iterator[Finding]:
    """Whether the commands can write where they do."""
    for path in (ROOT, ROOT / "var", ROOT / "results"):
        if path.exists() and not os.access(path, os.W_OK | os.X_OK):
            todo = f"make {path} yours (sudo chown -R $USER), or work in a copy of your own"
            yield Finding("may write", f"not to {path}", todo)
            return
    yield Finding("may write", str(ROOT))


def room() -> Iterator[Finding]:
    """Disk, memory, cores and open files."""
    free = shutil.disk_usage(ROOT).free
    yield Finding("disk", f"{free // MB} MB free", _least(free, LEAST_DISK, "disk space"))
    memory = _memory()
    if memory:
        yield Finding("memory", f"{memory // MB} MB", _least(memory, LEAST_MEMORY, "memory"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("cores", "1: enough, but slow" if cores == 1 else str(cores), note=cores == 1)


def _least(there: int, least: int, what: str) -> str:
    return "" if there >= least else f"free some {what}: {least // MB} MB are needed"


def _memory() -> int:
    """Bytes of memory that are available, else in total; 0 if unknown."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return int(re.findall(r"MemAvailable: +([0-9]+) kB", text)[0]) * 1024
    except (OSError, IndexError):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError):
            return 0


def ports() -> Iterator[Finding]:
    """Whether programs may listen on 127.0.0.1, and whether the usual ports are free."""
    if not _is_free(0):
        yield Finding("ports", "none", "let programs listen on 127.0.0.1")
        return
    taken = [f"{port} ({what})" for port, what in PORTS.items() if not _is_free(port)]
    if taken:
        says = f"taken: {', '.join(taken)}; make serve takes others"
        yield Finding("ports", says, note=True)
    else:
        yield Finding("ports", "8000 and 8089 are free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def servers() -> Iterator[Finding]:
    """Start PostgreSQL and Valkey as the commands do, and ask them; or ask those of the URLs."""
    if sys.prefix == sys.base_prefix:
        return
    began = time.monotonic()
    try:
        from servers import embedded, postgres, valkey

        embedded.provide_urls()
        asked: dict[str, Callable[[], str]] = {
            "PostgreSQL": postgres.version,
            "Valkey or Redis": valkey.version,
        }
    except Exception as error:
        yield Finding("PostgreSQL", *_refused(error))
        return
    for name, ask in asked.items():
        try:
            yield Finding(name, f"{ask()} answers, {time.monotonic() - began:.1f} s")
        except Exception as error:
            yield Finding(name, *_refused(error))
    embedded.detach()


def _refused(error: Exception) -> tuple[str, str]:
    says = str(error).replace("\n", "\n" + " " * 21)
    if isinstance(error, ImportError):
        return f"not installed ({says})", "make clean, then make install"
    return says, "do what the message about the servers says"


def _is_there(name: str) -> bool:
    return Path(name).exists() if "/" in name else shutil.which(name) is not None


def _composes() -> bool:
    """Whether docker has its plugin: Debian's docker.io comes without."""
    if not _is_there("docker"):
        return False
    try:
        asked = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def optional() -> Iterator[Finding]:
    """What only some parts need."""
    for name, purpose in OPTIONAL.items():
        there = _composes() if name == "docker compose" else _is_there(name)
        short = name.rpartition("/")[2]
        says = f"there, for {purpose}" if there else f"not there; only for {purpose}"
        yield Finding(short, says, note=not there)
    proxies = [
        name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy")
    ]
    if proxies:
        yield Finding("proxy", f"{', '.join(proxies)}; this machine itself is asked without it")


if __name__ == "__main__":
    sys.exit(main())
