"""PostgreSQL and Valkey from pip wheels, for a machine that has neither.

All processes that work in this checkout (`manage.py`, pytest, `python -m loadtest`) share one
PostgreSQL and one Valkey. Such a process is called a user of the servers. The first user starts the
servers and the last user stops them. If a user was killed, the next user ends the processes that it
has left and drops its databases.

PostgreSQL listens only on a Unix socket, Valkey on 127.0.0.1. PostgreSQL's data and the logs of
both are in var/.
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

from servers.initdb import forget_libpq_variables
from servers.loopback import exempt_loopback_from_proxies, make_runtime_folder
from servers.postgres import Postgres
from servers.process import describe_end
from servers.registry import end_process, is_alive, read_identity, registry
from servers.server_errors import EmbeddedError as EmbeddedError
from servers.signals import end_on_hangup_and_sigterm, uninterrupted
from servers.valkey import Valkey as Valkey

ROOT = Path(__file__).resolve().parent.parent
VAR = ROOT / "var"
#: The database of `manage.py`. Every demo creates its own database.
DATABASE = "oversold"

#: The pid of the process that has called attach(). A forked child inherits it, but uses no server.
_attached_pid: int | None = None


def provide_urls() -> None:
    """Set DATABASE_URL and REDIS_URL to the URLs of embedded servers, unless they are set.

    Both servers are started if one of the URLs is unset. A URL counts as set if DATABASE_URL_FILE
    or REDIS_URL_FILE names a file, which the shop reads. With REDIS_SENTINELS, REDIS_URL is not
    needed. Call this only in entry points, such as manage.py: worker processes inherit the URLs.
    Raises EmbeddedError if a server does not start.
    """
    read_env()
    if not _is_set("DATABASE_URL"):
        attach()
        os.environ["DATABASE_URL"] = create_database(DATABASE, keep=True)
        _mark_as_embedded("DATABASE_URL")
    if not _is_set("REDIS_URL") and not _is_set("REDIS_SENTINELS"):
        attach()
        with registry(VAR) as registry_data:
            os.environ["REDIS_URL"] = f"redis://127.0.0.1:{registry_data['valkey']['port']}"
        _mark_as_embedded("REDIS_URL")


def _is_set(name: str) -> bool:
    """Return whether the environment has this variable, or names a file with its value."""
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


def _mark_as_embedded(name: str) -> None:
    """Add this variable to SHOP_EMBEDDED, so that `check --deploy` considers it unset."""
    names = os.environ.get("SHOP_EMBEDDED", "")
    os.environ["SHOP_EMBEDDED"] = ",".join(filter(None, (names, name)))


def read_env() -> None:
    """Read .env into the environment, except for variables that are set already."""
    environ.Env.read_env(ROOT / ".env")


def attach() -> None:
    """Use the embedded servers until this process ends. Start them if they are not running.

    A second call has no effect. From now on SIGTERM and SIGHUP end this process by an exception, as
    Ctrl-C does, and requests to this machine use no proxy. Unless DATABASE_URL is set, the
    variables of libpq are removed from the environment. Raises EmbeddedError if a server does not
    start.
    """
    global _attached_pid
    if _attached_pid == os.getpid():
        return
    exempt_loopback_from_proxies()
    if not _is_set("DATABASE_URL"):
        forget_libpq_variables()
    end_on_hangup_and_sigterm()
    undo = ExitStack()
    with uninterrupted():
        with registry(VAR, undo) as registry_data:
            _clean_up_after_dead_users(registry_data)
            _start_servers(registry_data, undo)
            own_entry = {**read_identity(os.getpid()), "children": [], "databases": []}
            registry_data["users"].append(own_entry)
        _attached_pid = os.getpid()
        atexit.register(detach)


def _start_servers(registry_data: dict[str, Any], undo: ExitStack) -> None:
    """Start the servers that are not running. Closing `undo` stops them again."""
    postgres = _embedded_postgres()
    if not postgres.is_running():
        undo.callback(postgres.stop)
    postgres.start()
    valkey = registry_data.get("valkey")
    if valkey is None or not is_alive(valkey):
        server = Valkey(VAR / "valkey")
        registry_data["valkey"] = {**read_identity(server.start()), "port": server.port}
        server.leave_running()
        undo.callback(end_process, registry_data["valkey"])


def kill_at_exit(pid: int) -> None:
    """Let this child process be killed when the current process ends.

    If the current process is killed itself, the next process that uses the embedded servers kills
    the child. Raises EmbeddedError if the current process has not called attach().
    """
    with registry(VAR) as registry_data:
        _find_own_entry(registry_data)["children"].append(read_identity(pid))


def detach() -> None:
    """Stop using the embedded servers. The last process that uses them also stops them.

    After attach() this function also runs at exit. The registry is written last. If this process is
    killed before that, the registry still lists it, and the next user of the servers ends its
    children and drops its databases.
    """
    global _attached_pid
    if _attached_pid != os.getpid():
        return  # attach() was called in the parent of this process, or detach() was called before
    with uninterrupted(lambda: _print_to_stderr("still stopping PostgreSQL and Valkey")):
        _attached_pid = None
        try:
            with registry(VAR) as registry_data:
                _leave_registry(registry_data)
        except EmbeddedError as error:
            _print_to_stderr(f"PostgreSQL and Valkey may still run: {error}")


def _leave_registry(registry_data: dict[str, Any]) -> None:
    """End the children of this process, drop its databases, and remove it from the registry.

    The last user also stops the servers. If a database cannot be dropped, this process stays in the
    registry, and the next user of the servers drops its databases.
    """
    own_entry = _find_own_entry(registry_data)
    for child in own_entry["children"]:
        end_process(child, signal.SIGKILL)
    try:
        for name in own_entry["databases"]:
            _drop_database(name)
        _clean_up_after_dead_users(registry_data)
        registry_data["users"].remove(own_entry)
    except (EmbeddedError, psycopg.Error) as error:
        _print_to_stderr(
            f"could not drop all databases ({error}); the next start of the servers drops them"
        )
    if not any(is_alive(user) for user in registry_data["users"] if user is not own_entry):
        _embedded_postgres().stop()
        valkey = registry_data.pop("valkey", None)
        if valkey is not None:
            end_process(valkey)


def find_postgres_pid() -> int | None:
    """Return the pid of the embedded PostgreSQL, or None if it does not run."""
    postgres = _embedded_postgres()
    return postgres.pid if postgres.is_running() else None


def why_postgres_ended() -> str:
    """Return a message that says why the embedded PostgreSQL ended; empty while it runs."""
    postgres = _embedded_postgres()
    if postgres.is_running():
        return ""
    return describe_end("PostgreSQL", None, postgres.log)


def _print_to_stderr(text: str) -> None:
    with suppress(OSError, ValueError):  # raised if the terminal or the pipe is closed
        print(text, file=sys.stderr, flush=True)


def create_database(name: str, *, keep: bool = False, template: str = "template1") -> str:
    """Create a database as a copy of `template`, unless it exists. Return its URL.

    Unless `keep` is true, the database is dropped when this process ends, even if it is not new.
    Raises EmbeddedError if PostgreSQL does not answer, or if this process has not called attach().
    """
    with registry(VAR) as registry_data:
        if name not in _list_databases():
            _execute("CREATE DATABASE {} TEMPLATE {}", name, template)
        if not keep:
            _find_own_entry(registry_data)["databases"].append(name)
    folder = quote(str(_embedded_postgres().socket_folder()), safe="")
    return f"postgresql://postgres@/{name}?host={folder}"


def has_database(name: str) -> bool:
    """Return whether there is a database of this name."""
    with registry(VAR):
        return name in _list_databases()


def keep_database_as(name: str, new_name: str, *, replaced_prefix: str) -> None:
    """Rename a database, so that it is not dropped when this process ends.

    Databases whose names begin with `replaced_prefix` are dropped now. Nothing happens if a
    database `new_name` exists: then another process has already renamed its database.
    """
    with registry(VAR):
        names = _list_databases()
        if new_name in names:
            return
        for old_name in names:
            if old_name.startswith(replaced_prefix):
                _drop_database(old_name)
        _execute("ALTER DATABASE {} RENAME TO {}", name, new_name)


def _list_databases() -> set[str]:
    return {str(row[0]) for row in _execute("SELECT datname FROM pg_database")}


def _drop_database(name: str) -> None:
    """Drop a database if it exists, with the connections to it."""
    _execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def _execute(statement: LiteralString, *identifiers: str) -> list[tuple[Any, ...]]:
    """Execute a statement, with an identifier in place of each {}, and return its rows.

    Raises EmbeddedError if PostgreSQL does not answer, and psycopg.Error if the statement fails.
    """
    return _embedded_postgres().run_sql(
        sql.SQL(statement).format(*map(sql.Identifier, identifiers))
    )


def _embedded_postgres() -> Postgres:
    """Return an object for the embedded PostgreSQL, whether the server runs or not."""
    return Postgres(VAR / "postgres", runtime_folder=make_runtime_folder())


def _clean_up_after_dead_users(registry_data: dict[str, Any]) -> None:
    """End the children of users that have ended, drop their databases, and remove the users."""
    dead_users = [user for user in registry_data["users"] if not is_alive(user)]
    abandoned_databases: list[str] = []
    for user in dead_users:
        for child in user["children"]:
            end_process(child, signal.SIGKILL)
        abandoned_databases += user["databases"]
    if abandoned_databases:
        _embedded_postgres().start()
        for name in abandoned_databases:
            _drop_database(name)
    registry_data["users"] = [user for user in registry_data["users"] if user not in dead_users]


def _find_own_entry(registry_data: dict[str, Any]) -> dict[str, Any]:
    """Return this process's entry in the registry. Raises EmbeddedError if there is none."""
    for user in registry_data["users"]:
        if user["pid"] == os.getpid():
            return user  # type: ignore[no-any-return]
    raise EmbeddedError("this process uses no embedded server: call attach() first")
