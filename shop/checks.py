"""System checks: what makes a shop oversell or lose its locks, seen before it opens."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core.checks import ERROR, CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from redis.connection import parse_url
from redis.exceptions import RedisError

CACHE_ALIASES = ("default", "locks")


@register(Tags.database)
def check_database(**kwargs: Any) -> list[CheckMessage]:
    engine = settings.DATABASES["default"].get("ENGINE", "")
    if engine == "django.db.backends.postgresql":
        return []
    return [
        Error(
            f"The database is {engine or 'not set'}, not PostgreSQL.",
            hint="Set DATABASE_URL=postgresql://..., or run through manage.py, which brings one.",
            id="shop.E001",
        )
    ]


@register()
def check_atomic_requests(**kwargs: Any) -> list[CheckMessage]:
    if not settings.DATABASES["default"].get("ATOMIC_REQUESTS"):
        return []
    return [
        Error(
            "ATOMIC_REQUESTS opens the transaction before the lock and commits after it.",
            hint="Remove it: every strategy opens its own transaction inside its lock.",
            id="shop.E002",
        )
    ]


@register()
def check_locks_database(**kwargs: Any) -> list[CheckMessage]:
    try:
        places = {alias: _place(settings.CACHES[alias]["LOCATION"]) for alias in CACHE_ALIASES}
    except ValueError as error:
        return [
            Error(
                f"REDIS_URL or REDIS_LOCKS_URL cannot be read: {error}.",
                hint="Use redis://host:6379/0, rediss://... or unix:///path/to/socket?db=0.",
                id="shop.E005",
            )
        ]
    if places["locks"] != places["default"]:
        return []
    return [
        Error(
            "The cache aliases `default` and `locks` are one Redis database: cache.clear() would "
            "drop every lock, and with one URL both would share one connection pool.",
            hint="Give REDIS_LOCKS_URL another database number or server.",
            id="shop.E003",
        )
    ]


def _place(url: str) -> tuple[Any, ...]:
    """Which database of which server a URL means, however it is spelled."""
    given: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
    server = given.get("path") or (given.get("host", "localhost"), given.get("port", 6379))
    return server, given.get("db", 0)


@register(deploy=True)
def check_eviction(**kwargs: Any) -> list[CheckMessage]:
    """Asks the locks' Redis; `check_stack` reports one that does not answer."""
    from shop.redis import locks_client  # models: not before the apps are ready

    try:
        policy = locks_client().info("memory")["maxmemory_policy"]
    except (RedisError, OSError, KeyError):
        return []
    if policy == "noeviction":
        return []
    return [
        Warning(
            f"The locks' Redis has maxmemory-policy {policy}: short of memory it drops locks that "
            "are held.",
            hint="Set maxmemory-policy noeviction there, and keep caches on another server.",
            id="shop.W003",
        )
    ]


@register()
def check_statement_timeout(**kwargs: Any) -> list[CheckMessage]:
    statement = settings.DB_TIMEOUTS_MS["statement_timeout"] / 1000
    if statement < settings.SHOP_LOCK_TTL:
        return []
    return [
        Warning(
            f"SHOP_LOCK_TTL is {settings.SHOP_LOCK_TTL} s, a statement may take {statement} s: "
            "a stuck holder outlives its lock.",
            hint="Keep idle-in-transaction < lock < statement timeout < SHOP_LOCK_TTL.",
            id="shop.W001",
        )
    ]


@register()
def check_max_hold(**kwargs: Any) -> list[CheckMessage]:
    ttl, most = settings.SHOP_LOCK_TTL, settings.SHOP_LOCK_MAX_HOLD
    statement = settings.DB_TIMEOUTS_MS["statement_timeout"] / 1000
    if not most >= ttl:
        return [
            Error(
                f"SHOP_LOCK_MAX_HOLD is {most} s, less than SHOP_LOCK_TTL, {ttl} s: every purchase "
                "under RedisLock would fail.",
                hint="Give seconds, at least SHOP_LOCK_TTL.",
                id="shop.E011",
            )
        ]
    messages: list[CheckMessage] = []
    if most <= statement:
        messages.append(
            Warning(
                f"SHOP_LOCK_MAX_HOLD is {most} s, a statement may take {statement} s: a holder "
                "that would still finish is renewed no more.",
                hint="Keep statement timeout < SHOP_LOCK_MAX_HOLD.",
                id="shop.W010",
            )
        )
    if most + ttl >= settings.SHOP_LOCK_WAIT:
        messages.append(
            Warning(
                f"A holder that hangs keeps others out for {most + ttl} s (SHOP_LOCK_MAX_HOLD + "
                f"SHOP_LOCK_TTL), a buyer waits {settings.SHOP_LOCK_WAIT} s: all of them would be "
                "answered `busy`.",
                hint="Keep SHOP_LOCK_MAX_HOLD + SHOP_LOCK_TTL < SHOP_LOCK_WAIT.",
                id="shop.W011",
            )
        )
    return messages


@register()
def check_timeouts(**kwargs: Any) -> list[CheckMessage]:
    names = ("SHOP_LOCK_TTL", "SHOP_TOKEN_TTL", "SHOP_LOCK_WAIT")
    return [
        Error(
            f"{name} is {getattr(settings, name)!r}: every purchase would fail.",
            hint="Give seconds, more than 0.",
            id="shop.E006",
        )
        for name in names
        if not getattr(settings, name) > 0
    ]


@register()
def check_waiting_room(**kwargs: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = [
        Error(
            f"{name} is {getattr(settings, name)}: every purchase would be refused.",
            hint="Give a number of buyers, 0 for no limit.",
            id="shop.E020",
        )
        for name in ("SHOP_MAX_PURCHASES", "SHOP_MAX_WAITING")
        if getattr(settings, name) < 0
    ]
    most, threads = settings.SHOP_MAX_PURCHASES, settings.WEB_THREADS
    waits_in_threads = os.environ.get("WEB_SERVER", "") != "asgi"
    if most > threads - settings.SPARE_THREADS and waits_in_threads:
        found.append(
            Warning(
                f"SHOP_MAX_PURCHASES is {most} and a process has {threads} threads: pages and "
                "health checks would wait behind purchases.",
                hint=f"Keep it at least {settings.SPARE_THREADS} below WEB_THREADS.",
                id="shop.W020",
            )
        )
    return found


@register()
def the_servers_lock_is_sound(**kwargs: Any) -> list[CheckMessage]:
    from shop.strategies import STRATEGIES  # models: not before the apps are ready

    strategy = STRATEGIES.get(settings.SHOP_LOCK)
    if settings.SHOP_DEMO or (strategy and strategy.sound):
        return []
    if strategy and strategy.deferred:
        return [
            Warning(
                f"SHOP_LOCK is {settings.SHOP_LOCK!r}: buyers are answered `sold` before their "
                "orders are written, and what Redis loses until then was promised.",
                hint="Run manage.py settle, give Redis appendonly yes, and read Reservations in "
                "docs/production.md; or set another lock.",
                id="shop.W012",
            )
        ]
    wrong = "oversells or can stop for good" if strategy else "is no strategy"
    return [
        Error(
            f"SHOP_LOCK is {settings.SHOP_LOCK!r}, which {wrong}.",
            hint="Set SHOP_LOCK to one of "
            f"{', '.join(name for name, one in STRATEGIES.items() if one.sound)}.",
            id="shop.E012",
        )
    ]


def refuse_to_start() -> None:
    """What a shop must not sell with, asked by every process that serves: system checks stop
    manage.py alone. Raises ImproperlyConfigured."""
    for wrong in the_servers_lock_is_sound():
        if not wrong.is_serious(ERROR):
            continue
        raise ImproperlyConfigured(f"{wrong.msg} {wrong.hint}")
