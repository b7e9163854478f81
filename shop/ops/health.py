"""The readiness of a node: the servers that a sale needs, and whether the node is stopping."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import redis
from django.conf import settings
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor

from shop.ops.connections import discard_dead_connections, replace_all_connections
from shop.ops.database import read_database_software
from shop.ops.redis import locks_client

#: Errors of a part that is not ready. Without DATABASE_URL Django raises ImproperlyConfigured. The
#: functions below raise LookupError for a part that answers, but is not ready.
NOT_READY_ERRORS = (
    DatabaseError,
    InterfaceError,
    ImproperlyConfigured,
    redis.RedisError,
    LookupError,
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the stack, such as a server.

    detail  the state of the part or, if it is not ready, the cause and what to do
    """

    name: str
    ok: bool
    detail: str


#: Seconds for which the result of one check is returned to every health probe.
CHECK_LIFETIME_SECONDS = 1.0
#: The time of the last check, and its result.
_last_check: tuple[float, list[Part]] | None = None
_check_lock = threading.Lock()
# The functions that register_backlog_reader() and register_stopping_check() set.
_backlog_reader: Callable[[], tuple[int, float]] | None = None
_stopping_check: Callable[[], bool] | None = None


def register_backlog_reader(read_backlog: Callable[[], tuple[int, float]]) -> None:
    """Set the function that reads how many sold units have no order in the database yet.

    These are promises of the strategy `reserve`: units that Redis has sold. AppConfig.ready() calls
    this, because this package must not import shop.reserve.
    """
    global _backlog_reader
    _backlog_reader = read_backlog


def read_backlog() -> tuple[int, float] | None:
    """Return the number of unsettled promises, and the age of the oldest in seconds.

    An unsettled promise is a unit that Redis has sold, but that has no order in the database yet.
    Return None in a shop without the strategy `reserve`. Raises redis.RedisError.
    """
    if _backlog_reader is None:
        return None
    return _backlog_reader()


def register_stopping_check(is_process_stopping: Callable[[], bool]) -> None:
    """Set the function that returns whether this process is about to end.

    shop/gunicorn_conf.py calls this, because gunicorn decides when a worker ends.
    """
    global _stopping_check
    _stopping_check = is_process_stopping


def is_stopping() -> bool:
    """Return whether this process is about to end."""
    return _stopping_check is not None and _stopping_check()


def get_recent_parts() -> list[Part]:
    """Return a result of check_parts() that is at most CHECK_LIFETIME_SECONDS old.

    Concurrent probes wait for the same check, so that a slow server gets one request.
    """
    global _last_check
    with _check_lock:
        if _last_check is None or time.monotonic() - _last_check[0] >= CHECK_LIFETIME_SECONDS:
            parts = check_parts()
            _last_check = (time.monotonic(), parts)
        return _last_check[1]


def check_parts() -> list[Part]:
    """Check the parts of the stack now, and return them with their states.

    The parts are the database, its migrations, both Redis databases and, on PostgreSQL, the
    timeouts. Outside a demo, under the strategy `reserve`, another part is the number of sold units
    whose orders are not written yet.
    """
    parts = [
        _check_part(read_database_software(), _describe_database),
        _check_part("migrations", _describe_migrations),
        _check_part("Redis (locks)", _describe_redis),
        _check_part("Redis (cache)", _describe_cache),
    ]
    if _is_postgresql():
        parts.append(_check_part("PostgreSQL timeouts", _describe_timeouts))
    # In a demo it is possible that no buyer uses a strategy that promises units.
    if _backlog_reader is not None and not settings.SHOP_DEMO:
        parts.append(_check_part("promises", _describe_promises))
    return parts


def _check_part(name: str, describe: Callable[[], str]) -> Part:
    """Return a part of the stack, for example a server, with its state.

    describe  returns a description, or raises one of NOT_READY_ERRORS if the part is not ready
    """
    try:
        return Part(name, ok=True, detail=describe())
    except NOT_READY_ERRORS as error:
        if isinstance(error, DatabaseError | InterfaceError):
            # Otherwise the next check could get a dead connection from the pool.
            discard_dead_connections(error)
        problem = str(error).strip() or type(error).__name__
        return Part(name, ok=False, detail=problem)


def _is_postgresql() -> bool:
    """Return whether the database is PostgreSQL, or should be, because none is configured."""
    # Not == "postgresql": without DATABASE_URL the vendor is "unknown", and PostgreSQL is missing.
    return connection.vendor not in ("mysql", "sqlite")


def _describe_database() -> str:
    """Return the version of the database. Raises LookupError if PostgreSQL is read-only."""
    if not _is_postgresql():
        connection.ensure_connection()
        version = ".".join(map(str, connection.get_database_version()))
        return f"version {version}"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('server_version'), current_setting('fsync'),"
            " current_setting('transaction_read_only')"
        )
        version, fsync, read_only = cursor.fetchone()
    if read_only == "on":
        # The server is no longer the primary, so the pool must not keep connections to it.
        replace_all_connections()
        raise LookupError(
            "read-only: DATABASE_URL must lead to the primary, "
            "with default_transaction_read_only off"
        )
    return f"version {version}, fsync {fsync}"


def _describe_migrations() -> str:
    """Return a note that all migrations are applied. Raises LookupError if one is not."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise LookupError("not all applied: run manage.py migrate")
    return "all applied"


def _describe_timeouts() -> str:
    """Return the timeouts that are in effect. Raises LookupError if one is off or too long.

    A pooler between the shop and PostgreSQL may have ignored the shop's settings.
    """
    limits = settings.DB_TIMEOUTS_MS
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, extract(epoch FROM current_setting(name)::interval) * 1000"
            " FROM unnest(%s::text[]) AS name",
            [list(limits)],
        )
        effective_ms = {name: int(milliseconds) for name, milliseconds in cursor.fetchall()}
    # A limit of 0 means that the timeout is off.
    wrong_names = [name for name in limits if not 0 < effective_ms[name] <= limits[name]]
    if wrong_names:
        commands = "; ".join(f"ALTER ROLE ... SET {name} = {limits[name]}" for name in wrong_names)
        raise LookupError(
            f"timeouts are off or too long (behind a pooler the role must set them): {commands}"
        )
    return ", ".join(f"{name} {milliseconds} ms" for name, milliseconds in effective_ms.items())


def _describe_redis() -> str:
    """Return the version of the locks' Redis. Raises LookupError if it is a replica."""
    info = locks_client().info()
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version", info["redis_version"])
    description = f"{name} {version}, maxmemory-policy {info['maxmemory_policy']}"
    if not settings.REDIS_SENTINELS:
        return description
    if info["role"] != "master":
        raise LookupError("a replica answers for the master: wait for the end of the failover")
    return f"{description}, master {settings.REDIS_SENTINEL_MASTER!r} of the Sentinels"


def _describe_promises() -> str:
    """Describe the unsettled promises: units that Redis has sold, without an order yet.

    The node stays ready even if there are too many unsettled promises. All nodes share the
    promises, so a load balancer would find no other node that can sell.
    """
    assert _backlog_reader is not None
    count, age = _backlog_reader()
    return f"{count} of {settings.SHOP_MOST_UNSETTLED} unsettled, the oldest for {age:.1f} s"


def _describe_cache() -> str:
    """Return a note that the cache's Redis answers. Raises an error of Redis if it does not."""
    caches["default"].get("shop:readyz")  # the key does not exist; the request is the check
    return "answers"
