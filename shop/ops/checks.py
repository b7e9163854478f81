"""System checks of the servers: what makes a shop oversell or lose its locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from redis.connection import parse_url
from redis.exceptions import RedisError


@register(Tags.database)
def check_database(**kwargs: Any) -> Iterator[CheckMessage]:
    engine = settings.DATABASES["default"].get("ENGINE", "")
    if engine != "django.db.backends.postgresql":
        yield Error(
            f"The database is {engine or 'not set'}, not PostgreSQL.",
            hint="Set DATABASE_URL=postgresql://..., or run through manage.py, which brings one.",
            id="shop.E001",
        )


@register()
def check_atomic_requests(**kwargs: Any) -> Iterator[CheckMessage]:
    if settings.DATABASES["default"].get("ATOMIC_REQUESTS"):
        yield Error(
            "ATOMIC_REQUESTS opens the transaction before the lock and commits after it.",
            hint="Remove it: every strategy opens its own transaction inside its lock.",
            id="shop.E002",
        )


@register()
def check_locks_database(**kwargs: Any) -> Iterator[CheckMessage]:
    try:
        places = [_place(settings.CACHES[alias]["LOCATION"]) for alias in ("default", "locks")]
    except ValueError as error:
        yield Error(
            f"REDIS_URL or REDIS_LOCKS_URL cannot be read: {error}.",
            hint="Use redis://host:6379/0, rediss://... or unix:///path/to/socket?db=0.",
            id="shop.E005",
        )
        return
    if places[0] == places[1]:
        yield Error(
            "The cache aliases `default` and `locks` are one Redis database: cache.clear() would "
            "drop every lock, and with one URL both would share one connection pool.",
            hint="Give REDIS_LOCKS_URL another database number or server.",
            id="shop.E003",
        )


def _place(url: str) -> tuple[Any, ...]:
    """Which database of which server a URL means, however it is spelled."""
    given: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
    server = given.get("path") or (given.get("host", "localhost"), given.get("port", 6379))
    return server, given.get("db", 0)


@register(deploy=True)
def check_eviction(**kwargs: Any) -> Iterator[CheckMessage]:
    """Asks the locks' Redis; `check_stack` reports one that does not answer."""
    from shop.ops.redis import locks_client  # models: not before the apps are ready

    try:
        policy = locks_client().info("memory")["maxmemory_policy"]
    except (RedisError, OSError, KeyError):
        return
    if policy != "noeviction":
        yield Warning(
            f"The locks' Redis has maxmemory-policy {policy}: short of memory it drops locks that "
            "are held.",
            hint="Set maxmemory-policy noeviction there, and keep caches on another server.",
            id="shop.W003",
        )
