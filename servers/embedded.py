"""PostgreSQL and Valkey from pip wheels, for a machine that has neither.

All processes that work in this checkout (`manage.py`, pytest, `python -m loadtest`) share one
PostgreSQL and one Valkey. The first user starts them and the last one stops them. The next user
cleans up the processes and databases of users that were killed.

PostgreSQL listens on a Unix socket only, Valkey on 127.0.0.1. Their data is in var/.
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

from servers.errors import EmbeddedError
from servers.postgres import Postgres
from servers.valkey import Valkey

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
#: The database of `manage.py`. Every demo has one of its own beside it.
DATABASE = "oversold"
#: Seconds by which two readings of one process's start time may differ: they are computed from the
#: boot time, which moves when the machine's clock is corrected.
SAME_START = 30.0

_attached_by: int | None = None


def provide_urls() -> None:
    """Set DATABASE_URL and REDIS_URL where they are unset, and start the servers for them.

    With REDIS_SENTINELS no REDIS_URL is needed. Called by what a person starts (manage.py, pytest,
    the load test), never by a worker.
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
    """Read .env into the environment. Variables that are set already win."""
    environ.Env.read_env(ROOT / ".env")


def attach() -> None:
    """Use the two servers until this process ends, and start them if they do not run. Idempotent.

    Raises EmbeddedError when one of them does not start.
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
    """Register a child process: if this process is killed, the next user kills the child."""
    with _registry() as registry:
        _me(registry)["children"].append(_identity(pid))


def create_database(name: str, *, keep: bool = False, template: str = "template1") -> str:
    """Create a database unless it is there, as a copy of `template`. Returns its URL.

    Without `keep` it is dropped at the end.
    """
    with _registry() as registry, _admin() as connection:
        there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if there.fetchone() is None:
            names = map(sql.Identifier, (name, template))
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
        if not keep:
            _me(registry)["databases"].append(name)
    return f"postgresql://postgres@/{name}?host={quote(str(_postgres().socket_folder()), safe='')}"


def has_database(name: str) -> bool:
    """Whether there is a database of this name."""
    with _registry(), _admin() as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        return found.fetchone() is not None


def keep_as(database: str, name: str, *, instead_of: str) -> None:
    """Rename a database, unless another process was first. It is not dropped at the end; those with
    names that begin with `instead_of` are dropped now."""
    with _registry(), _admin() as connection:
        rows = connection.execute("SELECT datname FROM pg_database").fetchall()
        names = {str(row[0]) for row in rows}
        if name in names:
            return
        for old in names:
            if old.startswith(instead_of):
                _drop_database(old)
        both = map(sql.Identifier, (database, name))
        connection.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(*both))


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
    """This user's folder with a short path: a Unix socket's path is limited to about 100 bytes."""
    folder = Path(tempfile.gettempdir()) / f"oversold-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise EmbeddedError(f"{folder} belongs to another user: remove it, or set TMPDIR")
    return folder


@contextmanager
def _registry() -> Iterator[dict[str, Any]]:
    """The users of the servers, read and written under a file lock."""
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
    """Stop using the servers; the last user stops them."""
    global _attached_by
    if _attached_by != os.getpid():
        return  # a forked child of the user
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
    """A pid with its start time: a pid alone may be used again."""
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
