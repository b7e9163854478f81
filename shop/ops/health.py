"""Whether everything that a sale needs answers."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

import redis
from django.conf import settings
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse
from django.urls import resolve
from django.utils.deprecation import MiddlewareMixin

from shop.ops.connections import discard_dead
from shop.ops.redis import locks_client

#: What a part that is not ready raises; without DATABASE_URL it is Django that says so.
NOT_READY = (DatabaseError, InterfaceError, ImproperlyConfigured, redis.RedisError, LookupError)
PROBES = ("/healthz", "/readyz")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the stack: its name, whether it answers, and what it says or what to do."""

    name: str
    ok: bool
    detail: str


#: Promises without an order yet: how many, and the age of the oldest in seconds. None in a shop
#: that promises nothing; set by the app, for the promises know this room and not the reverse.
backlog: Callable[[], tuple[int, float]] | None = None
#: How long an answer is given again, in seconds.
FRESH = 1.0
#: Whether this process is about to end. gunicorn's hooks know (shop/gunicorn_conf.py).
is_stopping: Callable[[], bool] = lambda: False  # noqa: E731
_last: tuple[float, list[Part]] | None = None
_asking = threading.Lock()


def recent() -> list[Part]:
    """`stack()` as it was a second ago at most: this process asks once a second, however many want
    to know, and they wait for one answer where a server is slow to give it."""
    global _last
    with _asking:
        if _last is None or time.monotonic() - _last[0] >= FRESH:
            parts = stack()
            _last = time.monotonic(), parts
        return _last[1]


def stack() -> list[Part]:
    """PostgreSQL, its migrations and timeouts, the Redis of the locks and that of the cache; of a
    shop that promises, how far its consumers are behind."""
    promises = backlog is not None and not settings.SHOP_DEMO
    behind = [_part("promises", _promises)] if promises else []
    return [
        _part("PostgreSQL", _postgres),
        _part("migrations", _migrations),
        _part("Redis (locks)", _redis),
        _part("Redis (cache)", _cache),
        _part("PostgreSQL timeouts", _timeouts),
        *behind,
    ]


def _part(name: str, ask: Callable[[], str]) -> Part:
    try:
        return Part(name, True, ask())
    except NOT_READY as error:
        if isinstance(error, DatabaseError | InterfaceError):
            discard_dead(error)  # or one of the pool would fail at each look
        return Part(name, False, str(error).strip() or type(error).__name__)


def _postgres() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version'), current_setting('fsync')")
        version, fsync = cursor.fetchone()
    return f"version {version}, fsync {fsync}"


def _migrations() -> str:
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise LookupError("not all applied: run manage.py migrate")
    return "all applied"


def _timeouts() -> str:
    """The timeouts that hold, wherever they were set: a pooler may have dropped those of ours."""
    wanted = settings.DB_TIMEOUTS_MS
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, extract(epoch FROM current_setting(name)::interval) * 1000"
            " FROM unnest(%s::text[]) AS name",
            [list(wanted)],
        )
        effective = {name: int(milliseconds) for name, milliseconds in cursor.fetchall()}
    if missing := [name for name in wanted if not 0 < effective[name] <= wanted[name]]:
        commands = "; ".join(f"ALTER ROLE ... SET {name} = {wanted[name]}" for name in missing)
        raise LookupError(f"behind a pooler the role must bring its timeouts: {commands}")
    return ", ".join(f"{name} {milliseconds} ms" for name, milliseconds in effective.items())


def _redis() -> str:
    info = locks_client().info()
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version", info["redis_version"])
    said = f"{name} {version}, maxmemory-policy {info['maxmemory_policy']}"
    if not settings.REDIS_SENTINELS:
        return said
    if info["role"] != "master":
        raise LookupError("a replica answers for the master: wait for the end of the failover")
    return f"{said}, master {settings.REDIS_SENTINEL_MASTER!r} of the Sentinels"


def _promises() -> str:
    """Ready however many wait: no node is better off, and /buy refuses by itself."""
    assert backlog is not None
    count, oldest = backlog()
    return f"{count} of {settings.SHOP_MOST_UNSETTLED} unsettled, the oldest for {oldest:.1f} s"


def _cache() -> str:
    caches["default"].get("shop:readyz")
    return "answers"


class HealthMiddleware(MiddlewareMixin):
    """Answer /healthz and /readyz where the Host is an IP address: orchestrators and load balancers
    ask a node by its address, which is not in ALLOWED_HOSTS. Not under any name: a page that was
    rebound to this address has a name. SECURE_REDIRECT_EXEMPT lets them ask without TLS.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        asked_by_address = _is_address(str(request.META.get("HTTP_HOST", "")))
        if request.path_info not in PROBES or not asked_by_address:
            return None
        answer: HttpResponse = resolve(request.path_info).func(request)
        return answer


def _is_address(host: str) -> bool:
    """Whether a Host header names an IP address, with or without a port."""
    try:
        ip_address(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
    return True
