"""PostgreSQL and Valkey from pip wheels, for a machine that has neither.

One PostgreSQL and one Valkey serve everybody who works in this checkout: `manage.py`, pytest and
`python -m loadtest`. The first user starts them and the last one stops them. What a user that was
killed left behind (its processes, its databases) is cleaned up by the next one.

PostgreSQL listens on a Unix socket alone, Valkey on 127.0.0.1. Their data lives in var/.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import environ
import psutil
import psycopg
from psycopg import sql

from servers.processes import EmbeddedError, Postgres, Valkey

__all__ = [
    "EmbeddedError",
    "Valkey",
    "adopt",
    "attach",
    "create_database",
    "provide_urls",
    "read_env",
]

ROOT = Path(__file__).resolve().parent.parent
VAR = ROOT / "var"
#: The database of `manage.py`; every demo has one of its own beside it.
DATABASE = "oversold"
#: Seconds by which two readings of one process's start may differ: they are derived from the
#: machine's boot time, which moves with every correction of its clock.
SAME_START = 30.0

_attached_by: int | None = None


def provide_urls() -> None:
    """Set DATABASE_URL and REDIS_URL where they are unset, starting the servers for them.
    Where REDIS_SENTINELS is set, Redis is found without a URL.

    Called by what a person starts (manage.py, pytest, the load test), never by a worker.
    """
    read_env()
    if not os.environ.get("DATABASE_URL"):
        attach()
        os.environ["DATABASE_URL"] = create_database(DATABASE, keep=True)
        _note("DATABASE_URL")
    if not os.environ.get("REDIS_URL") and not os.environ.get("REDIS_SENTINELS"):
        attach()
        with _registry() as registry:
            os.environ["REDIS_URL"] = f"redis://127.0.0.1:{registry['valkey']['port']}"
        _note("REDIS_URL")


def _note(name: str) -> None:
    """Say in SHOP_EMBEDDED that this URL is ours: `check --deploy` takes it for not set."""
    known = os.environ.get("SHOP_EMBEDDED", "")
    os.environ["SHOP_EMBEDDED"] = f"{known},{name}" if known else name


def read_env() -> None:
    """Take over what .env sets and the environment does not: a URL there is a URL, too."""
    environ.Env.read_env(ROOT / ".env")


def attach() -> None:
    """Use the two servers until this process ends; start them if nobody did. Idempotent.

    Raises EmbeddedError, with what to do, when one of them does not start.
    """
    global _attached_by
    if _attached_by == os.getpid():
        return
    with _registry() as registry:
        _clean_up_after_the_dead(registry)
        _postgres().start()
        valkey = registry.get("valkey")
        if valkey is None or not _is_alive(valkey):
            server = Valkey(VAR / "valkey")
            registry["valkey"] = {**_identity(server.start()), "port": server.port}
            server.leave_running()
        registry["users"].append({**_identity(os.getpid()), "children": [], "databases": []})
    _attached_by = os.getpid()
    atexit.register(_detach)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit_on_sigterm)


def adopt(pid: int) -> None:
    """Remember a process that this one started: if this one is killed, the next user stops it."""
    with _registry() as registry:
        _me(registry)["children"].append(_identity(pid))


def create_database(name: str, *, keep: bool = False) -> str:
    """Create a database unless it is there; its URL. Without `keep` it is dropped at the end."""
    with _registry() as registry, _admin() as connection:
        there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if there.fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        if not keep:
            _me(registry)["databases"].append(name)
    return f"postgresql://postgres@/{name}?host={quote(str(_postgres().socket_folder()), safe='')}"


def _drop_database(name: str) -> None:
    with _admin() as connection:
        connection.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )


@contextmanager
def _admin() -> Iterator[psycopg.Connection[Any]]:
    folder = str(_postgres().socket_folder())
    with psycopg.connect(
        host=folder, user="postgres", dbname="postgres", autocommit=True
    ) as connection:
        yield connection


def _postgres() -> Postgres:
    return Postgres(VAR / "postgres", runtime=_runtime_folder())


def _runtime_folder() -> Path:
    """A folder of this user's own with a short path: a Unix socket's has a limit of about 100."""
    folder = Path(tempfile.gettempdir()) / f"oversold-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise EmbeddedError(f"{folder} belongs to somebody else: remove it, or set TMPDIR")
    return folder


@contextmanager
def _registry() -> Iterator[dict[str, Any]]:
    """Who uses the servers, read and written under a file lock."""
    try:
        VAR.mkdir(exist_ok=True)
        with open(VAR / "lock", "w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            path = VAR / "users.json"
            try:
                registry = json.loads(path.read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                registry = {"users": []}
            try:
                yield registry
            finally:
                partial = path.with_suffix(".partial")
                partial.write_text(json.dumps(registry, indent=1))
                partial.replace(path)
    except PermissionError as error:
        raise EmbeddedError(
            f"{error.filename} belongs to another user: work as that user, or remove {VAR}"
        ) from error


def _clean_up_after_the_dead(registry: dict[str, Any]) -> None:
    dead = [user for user in registry["users"] if not _is_alive(user)]
    registry["users"] = [user for user in registry["users"] if _is_alive(user)]
    for user in dead:
        for child in user["children"]:
            if _is_alive(child):
                psutil.Process(child["pid"]).kill()
    abandoned = [name for user in dead for name in user["databases"]]
    if abandoned:
        _postgres().start()
        for name in abandoned:
            _drop_database(name)


def _detach() -> None:
    """The last one out stops the servers."""
    global _attached_by
    if _attached_by != os.getpid():
        return  # a fork of the user, not the user
    _attached_by = None
    with _registry() as registry:
        for name in _me(registry)["databases"]:
            _drop_database(name)
        registry["users"] = [user for user in registry["users"] if user["pid"] != os.getpid()]
        _clean_up_after_the_dead(registry)
        if not registry["users"]:
            _postgres().stop()
            valkey = registry.pop("valkey", None)
            if valkey is not None and _is_alive(valkey):
                psutil.Process(valkey["pid"]).terminate()


def _exit_on_sigterm(signum: int, frame: object) -> None:
    raise SystemExit(128 + signum)


def _me(registry: dict[str, Any]) -> dict[str, Any]:
    for user in registry["users"]:
        if user["pid"] == os.getpid():
            return user  # type: ignore[no-any-return]
    raise EmbeddedError("this process uses no embedded server: call attach() first")


def _identity(pid: int) -> dict[str, Any]:
    """A pid with its start time: pids are used again, the pair is not."""
    return {"pid": pid, "created": psutil.Process(pid).create_time()}


def _is_alive(identity: dict[str, Any]) -> bool:
    try:
        process = psutil.Process(identity["pid"])
        return (
            abs(process.create_time() - float(identity["created"])) < SAME_START
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return False
