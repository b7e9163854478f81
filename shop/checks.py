"""System checks for settings that make a shop oversell, lose its locks or sell nothing.

Checks with deploy=True are for production: manage.py check --deploy.
"""

import os
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import ERROR, CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from redis.connection import parse_url
from redis.exceptions import RedisError

Messages = Iterator[CheckMessage]

MIN_TOKEN_CHARACTERS = 24
POSTGRESQL = "django.db.backends.postgresql"
#: Databases that a demo may use besides PostgreSQL.
DEMO_DATABASES = {"django.db.backends.mysql", "django.db.backends.sqlite3"}


@register()
def check_numbers(**kwargs: Any) -> Messages:
    for name in ("SHOP_LOCK_TTL", "SHOP_TOKEN_TTL", "SHOP_LOCK_WAIT"):
        if not getattr(settings, name) >= 0.001:  # written so that NaN is refused, too
            yield _refuses_all(name, "seconds, more than 0", "shop.E006")
    for name in ("SHOP_MAX_PURCHASES", "SHOP_MAX_WAITING"):
        if getattr(settings, name) < 0:
            yield _refuses_all(name, "a number of buyers, 0 for no limit", "shop.E020")
    max_purchases = settings.SHOP_MAX_PURCHASES
    threads = settings.WEB_THREADS
    waits_in_threads = os.environ.get("WEB_SERVER", "") != "asgi"
    if max_purchases > threads - settings.SPARE_THREADS and waits_in_threads:
        yield Warning(
            f"SHOP_MAX_PURCHASES is {max_purchases} and a process has {threads} threads: pages and "
            "health checks would wait behind purchases.",
            hint=f"Keep it at least {settings.SPARE_THREADS} below WEB_THREADS.",
            id="shop.W020",
        )


def _refuses_all(name: str, allowed: str, check_id: str) -> Error:
    problem = f"{name} is {getattr(settings, name)}: every purchase would be refused."
    return Error(problem, hint=f"Give {allowed}.", id=check_id)


@register()
def check_hanging_holder(**kwargs: Any) -> Messages:
    """Check that idle-in-transaction < lock < statement timeout < ttl <= longest hold < wait."""
    ttl = settings.SHOP_LOCK_TTL
    max_hold = settings.SHOP_LOCK_MAX_HOLD
    statement = settings.DB_TIMEOUTS_MS["statement_timeout"] / 1000
    if statement >= ttl:
        yield Warning(
            f"SHOP_LOCK_TTL is {ttl} s, a statement may take {statement} s: "
            "a stuck holder outlives its lock.",
            hint="Keep idle-in-transaction < lock < statement timeout < SHOP_LOCK_TTL.",
            id="shop.W001",
        )
    if not max_hold >= ttl:
        yield Error(
            f"SHOP_LOCK_MAX_HOLD is {max_hold} s, less than SHOP_LOCK_TTL, {ttl} s: every purchase "
            "under RedisLock would fail.",
            hint="Give seconds, at least SHOP_LOCK_TTL.",
            id="shop.E011",
        )
        return
    if max_hold <= statement:
        yield Warning(
            f"SHOP_LOCK_MAX_HOLD is {max_hold} s, a statement may take {statement} s: a holder "
            "that would still finish is not renewed any more.",
            hint="Keep statement timeout < SHOP_LOCK_MAX_HOLD.",
            id="shop.W010",
        )
    if max_hold + ttl >= settings.SHOP_LOCK_WAIT:
        yield Warning(
            f"A holder that hangs blocks other buyers for {max_hold + ttl} s (SHOP_LOCK_MAX_HOLD + "
            f"SHOP_LOCK_TTL), a buyer waits {settings.SHOP_LOCK_WAIT} s: all of them would be "
            "answered `busy`.",
            hint="Keep SHOP_LOCK_MAX_HOLD + SHOP_LOCK_TTL < SHOP_LOCK_WAIT.",
            id="shop.W011",
        )


@register()
def check_lock(**kwargs: Any) -> Messages:
    from shop.strategies import STRATEGIES  # imports models: only once the apps are ready

    strategy = STRATEGIES.get(settings.SHOP_LOCK)
    if settings.SHOP_DEMO or (strategy and strategy.sound):
        return
    if strategy and strategy.deferred:
        yield Warning(
            f"SHOP_LOCK is {settings.SHOP_LOCK!r}: buyers are answered `sold` before their "
            "orders are written, and what Redis loses until then was promised.",
            hint="Run manage.py settle, give Redis appendonly yes, and read Reservations in "
            "docs/production.md; or set another lock.",
            id="shop.W012",
        )
        return
    problem = "oversells or can stop for good" if strategy else "is not a strategy"
    sound_names = [name for name, strategy in STRATEGIES.items() if strategy.sound]
    yield Error(
        f"SHOP_LOCK is {settings.SHOP_LOCK!r}, which {problem}.",
        hint=f"Set SHOP_LOCK to one of {', '.join(sound_names)}.",
        id="shop.E012",
    )


def refuse_to_start() -> None:
    """Raise ImproperlyConfigured if SHOP_LOCK is an error.

    Every process that serves requests calls this, because system checks stop only manage.py.
    """
    for message in check_lock():
        if message.is_serious(ERROR):
            raise ImproperlyConfigured(f"{message.msg} {message.hint}")


# --- servers ------------------------------------------------------------------------------------


@register(Tags.database)
def check_database(**kwargs: Any) -> Messages:
    engine = settings.DATABASES["default"].get("ENGINE", "")
    if engine != POSTGRESQL and not (settings.SHOP_DEMO and engine in DEMO_DATABASES):
        yield Error(
            f"The database is {engine or 'not set'}, not PostgreSQL.",
            hint="Set DATABASE_URL=postgresql://..., or use manage.py, which starts a PostgreSQL.",
            id="shop.E001",
        )


@register()
def check_server_settings(**kwargs: Any) -> Messages:
    if settings.DATABASES["default"].get("ATOMIC_REQUESTS"):
        yield Error(
            "ATOMIC_REQUESTS opens the transaction before the lock and commits after it.",
            hint="Remove it: every strategy opens its own transaction inside its lock.",
            id="shop.E002",
        )
    try:
        databases = [
            _database_of_url(settings.CACHES[alias]["LOCATION"]) for alias in ("default", "locks")
        ]
    except ValueError as error:
        yield Error(
            f"REDIS_URL or REDIS_LOCKS_URL cannot be read: {error}.",
            hint="Use redis://host:6379/0, rediss://... or unix:///path/to/socket?db=0.",
            id="shop.E005",
        )
        return
    if databases[0] == databases[1]:
        yield Error(
            "The cache aliases `default` and `locks` are one Redis database: cache.clear() would "
            "drop every lock. If their URLs are equal, they also share one connection pool.",
            hint="Give REDIS_LOCKS_URL another database number or server.",
            id="shop.E003",
        )


def _database_of_url(url: str) -> tuple[Any, ...]:
    """Return the server and the database of a Redis URL, equal for all spellings of the URL."""
    parts: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
    server = parts.get("path") or (parts.get("host", "localhost"), parts.get("port", 6379))
    return server, parts.get("db", 0)


@register(deploy=True)
def check_eviction(**kwargs: Any) -> Messages:
    """Check the eviction policy of the locks' Redis, unless it does not answer (`check_stack`)."""
    from shop.ops.redis import locks_client  # only once the apps are ready

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


# --- production ---------------------------------------------------------------------------------

#: Setting that production needs -> the effect of its absence, and the remedy.
REQUIRED_SETTINGS = {
    "SECRET_KEY": (
        "every process makes its own, so that logins end with every request to another process",
        'python -c "import secrets; print(secrets.token_urlsafe(64))" makes one; SECRET_KEY_FILE '
        "names a file that holds it.",
    ),
    "ALLOWED_HOSTS": (
        "the shop answers only to localhost",
        "Set the shop's public names, comma-separated: ALLOWED_HOSTS=shop.example.com.",
    ),
    "DATABASE_URL": (
        "there is no database, or manage.py brought its own",
        "DATABASE_URL=postgresql://user@host:5432/name?sslmode=verify-full, its password in the "
        "file that PGPASSFILE names.",
    ),
    "REDIS_URL": (
        "there are no locks, or manage.py brought its own Redis",
        "REDIS_URL=rediss://host:6379/0, its password in REDIS_PASSWORD_FILE.",
    ),
}


@register(Tags.security, deploy=True)
def check_production(**kwargs: Any) -> Messages:
    if settings.SHOP_DEMO:
        yield Error(
            "SHOP_DEMO is on: any buyer can hold the lock, inject faults, and sell under files "
            "of SHOP_DEMO_STRATEGIES.",
            hint="Unset SHOP_DEMO.",
            id="shop.E004",
        )
        return  # a demo needs none of the other settings
    for name in settings.MISSING:
        if not (name == "REDIS_URL" and settings.REDIS_SENTINELS):
            effect, hint = REQUIRED_SETTINGS[name]
            yield Error(f"{name} is not set: {effect}.", hint=hint, id="shop.E007")
    for host in settings.ALLOWED_HOSTS:
        if host.strip() in {"*", "."}:
            yield Error(
                f"ALLOWED_HOSTS contains {host!r}: a foreign page can talk to the shop by DNS "
                "rebinding, and links that the shop makes lead to any host that a client claims.",
                hint="List the shop's names. /healthz and /readyz answer probes by IP address, "
                "too.",
                id="shop.E008",
            )
    if not settings.HTTPS:
        yield Error(
            "HTTPS is off: sessions and orders travel in the clear.",
            hint="Set HTTPS=1, and SHOP_BEHIND_PROXY=1 where a proxy ends TLS and sets "
            "X-Forwarded-Proto and X-Forwarded-For.",
            id="shop.E009",
        )
    for name in ("SHOP_RESTOCK_TOKEN", "METRICS_TOKEN"):
        if 0 < len(getattr(settings, name)) < MIN_TOKEN_CHARACTERS:
            yield Error(
                f"{name} is short enough to be guessed.",
                hint='Use 24 characters or more: python -c "import secrets; '
                'print(secrets.token_urlsafe(32))". Unset, what it opens is closed.',
                id="shop.E010",
            )
