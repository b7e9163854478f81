"""PostgreSQL and Valkey from pip wheels, for a machine that has neither.

All processes that work in this checkout (`manage.py`, pytest, `python -m loadtest`) share one
PostgreSQL and one Valkey. The first user starts them and the last one stops them. The next user
cleans up the processes and databases of users that were killed.

PostgreSQL listens on a Unix socket only, Valkey on 127.0.0.1. Their data is in var/.
"""

import atexit
import os
import signal
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import quote

import environ
import psycopg
from psycopg import sql

from servers.errors import EmbeddedError as EmbeddedError
from servers.initdb import forget_libpq_variables
from servers.loopback import ask_loopback_directly, runtime_folder
from servers.postgres import Postgres
from servers.registry import end, identity, is_alive, registry
from servers.signals import end_on_hangup_and_sigterm, uninterrupted
from servers.valkey import Valkey as Valkey

ROOT = Path(__file__).resolve().parent.parent
VAR = ROOT / "var"
#: The database of `manage.py`. Every demo has another, of its own.
DATABASE = "oversold"

_attached_by: int | None = None


def provide_urls() -> None:
    """Set DATABASE_URL and REDIS_URL where they are unset, and start the servers for them.

    A file named in DATABASE_URL_FILE or REDIS_URL_FILE sets them too; the shop reads it. With
    REDIS_SENTINELS no REDIS_URL is needed. Called by what a person starts (manage.py, pytest,
    the load test), never by a worker.
    """
    read_env()
    if not _is_set("DATABASE_URL"):
        attach()
        os.environ["DATABASE_URL"] = create_database(DATABASE, keep=True)
        _note("DATABASE_URL")
    if not _is_set("REDIS_URL") and not _is_set("REDIS_SENTINELS"):
        attach()
        with registry(VAR) as users:
            os.environ["REDIS_URL"] = f"redis://127.0.0.1:{users['valkey']['port']}"
        _note("REDIS_URL")


def _is_set(name: str) -> bool:
    """Whether the environment has this variable, or names a file that has its value."""
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


def _note(name: str) -> None:
    """Say in SHOP_EMBEDDED that this URL is ours: `check --deploy` takes it for not set."""
    known = os.environ.get("SHOP_EMBEDDED", "")
    os.environ["SHOP_EMBEDDED"] = f"{known},{name}" if known else name


def read_env() -> None:
    """Read .env into the environment. Variables that are set already win."""
    environ.Env.read_env(ROOT / ".env")


def attach() -> None:
    """Use the two servers until this process ends, and start them if they do not run. Idempotent.

    Raises EmbeddedError when one of them does not start. From now on SIGTERM and SIGHUP end this
    process as Ctrl-C does, proxies are not asked for this machine, and where DATABASE_URL names no
    other server the variables of libpq are gone.
    """
    global _attached_by
    if _attached_by == os.getpid():
        return
    ask_loopback_directly()
    if not _is_set("DATABASE_URL"):
        forget_libpq_variables()
    end_on_hangup_and_sigterm()
    undo = ExitStack()
    with uninterrupted():
        with registry(VAR, undo) as users:
            _clean_up_after_the_dead(users)
            _start_servers(users, undo)
            me = {**identity(os.getpid()), "children": [], "databases": []}
            users["users"].append(me)
        _attached_by = os.getpid()
        atexit.register(detach)


def _start_servers(users: dict[str, Any], undo: ExitStack) -> None:
    postgres = _postgres()
    if not postgres.is_running():
        undo.callback(postgres.stop)
        postgres.start()
    known = users.get("valkey")
    if known is None or not is_alive(known):
        server = Valkey(VAR / "valkey")
        users["valkey"] = {**identity(server.start()), "port": server.port}
        server.leave_running()
        undo.callback(end, users["valkey"])


def adopt(pid: int) -> None:
    """Register a child process: if this process is killed, the next user kills the child, and what
    still runs when this process ends is killed then."""
    with registry(VAR) as users:
        _me(users)["children"].append(identity(pid))


def detach() -> None:
    """Stop using the servers; the last user stops them. Called at the end of the process.

    This process leaves the registry last: if it is killed before, the next user does the rest.
    """
    global _attached_by
    if _attached_by != os.getpid():
        return  # a forked child of the user, or a second call
    with uninterrupted(lambda: _say("still stopping PostgreSQL and Valkey")):
        _attached_by = None
        try:
            with registry(VAR) as users:
                _leave(users)
        except EmbeddedError as error:
            _say(f"everything has ended, but {error}")


def _leave(users: dict[str, Any]) -> None:
    me = _me(users)
    for child in me["children"]:
        end(child, signal.SIGKILL)
    try:
        for name in me["databases"]:
            _drop(name)
        _clean_up_after_the_dead(users)
        users["users"].remove(me)
    except (EmbeddedError, psycopg.Error) as error:
        _say(f"the next start drops what is left: {error}")
    if not any(is_alive(user) for user in users["users"] if user is not me):
        _postgres().stop()
        if (valkey := users.pop("valkey", None)) is not None:
            end(valkey)


def postgres_pid() -> int | None:
    """The process of the embedded PostgreSQL; None where it does not run."""
    postgres = _postgres()
    return postgres.pid if postgres.is_running() else None


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # nobody listens any more
        print(text, file=sys.stderr, flush=True)


def create_database(name: str, *, keep: bool = False, template: str = "template1") -> str:
    """Create a database unless it is there, as a copy of `template`. Returns its URL.

    Without `keep` it is dropped at the end.
    """
    with registry(VAR) as users:
        if name not in _databases():
            _sql("CREATE DATABASE {} TEMPLATE {}", name, template)
        if not keep:
            _me(users)["databases"].append(name)
    folder = quote(str(_postgres().socket_folder()), safe="")
    return f"postgresql://postgres@/{name}?host={folder}"


def has_database(name: str) -> bool:
    """Whether there is a database of this name."""
    with registry(VAR):
        return name in _databases()


def keep_as(database: str, name: str, *, instead_of: str) -> None:
    """Rename a database, unless another process was first. It is not dropped at the end; those with
    names that begin with `instead_of` are dropped now."""
    with registry(VAR):
        names = _databases()
        if name in names:
            return
        for old in names:
            if old.startswith(instead_of):
                _drop(old)
        _sql("ALTER DATABASE {} RENAME TO {}", database, name)


def _databases() -> set[str]:
    return {str(row[0]) for row in _sql("SELECT datname FROM pg_database")}


def _drop(name: str) -> None:
    """Drop a database if it is there, with the connections to it."""
    _sql("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def _sql(statement: LiteralString, *names: str) -> list[tuple[Any, ...]]:
    """The rows of a statement with these names. Raises EmbeddedError, as Postgres.sql does."""
    return _postgres().sql(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _postgres() -> Postgres:
    return Postgres(VAR / "postgres", runtime=runtime_folder())


def _clean_up_after_the_dead(users: dict[str, Any]) -> None:
    dead = [user for user in users["users"] if not is_alive(user)]
    for user in dead:
        for child in user["children"]:
            end(child, signal.SIGKILL)
    abandoned = [name for user in dead for name in user["databases"]]
    if abandoned:
        _postgres().start()
        for name in abandoned:
            _drop(name)
    users["users"] = [user for user in users["users"] if user not in dead]


def _me(users: dict[str, Any]) -> dict[str, Any]:
    for user in users["users"]:
        if user["pid"] == os.getpid():
            return user  # type: ignore[no-any-return]
    raise EmbeddedError("this process uses no embedded server: call attach() first")
