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
def check_times_and_limits(**kwargs: Any) -> Messages:
    """Check the ttl and the waiting time of the locks, and the limits on purchases."""
    for name in ("SHOP_LOCK_TTL", "SHOP_TOKEN_TTL", "SHOP_LOCK_WAIT"):
        if not getattr(settings, name) >= 0.001:  # written so that NaN is refused, too
            yield _make_number_error(name, "seconds, at least 0.001", "shop.E006")
    for name in ("SHOP_MAX_PURCHASES", "SHOP_MAX_WAITING"):
        if getattr(settings, name) < 0:
            yield _make_number_error(name, "a number of buyers, or 0 for no limit", "shop.E020")
    max_purchases = settings.SHOP_MAX_PURCHASES
    threads = settings.WEB_THREADS
    # On an asgi node a purchase does not need a thread while it waits.
    uses_thread_per_purchase = os.environ.get("WEB_SERVER", "") != "asgi"
    if uses_thread_per_purchase and max_purchases > threads - settings.SPARE_THREADS:
        yield Warning(
            f"SHOP_MAX_PURCHASES is {max_purchases}, but a process has {threads} threads "
            "(WEB_THREADS): if many buyers come at once, no thread is left for pages and health "
            "checks.",
            hint=f"Set SHOP_MAX_PURCHASES to at most WEB_THREADS - {settings.SPARE_THREADS}.",
            id="shop.W020",
        )


def _make_number_error(name: str, allowed: str, check_id: str) -> Error:
    problem = f"{name} is {getattr(settings, name)}: every purchase would be refused."
    return Error(problem, hint=f"Set it to {allowed}.", id=check_id)


@register()
def check_hanging_holder(**kwargs: Any) -> Messages:
    """Check the time limits for a holder that is stuck.

    PostgreSQL must cancel the holder's statement before the lock expires, and other buyers must
    wait for longer than the lock can last:

    statement_timeout < SHOP_LOCK_TTL <= SHOP_LOCK_MAX_HOLD
    SHOP_LOCK_MAX_HOLD + SHOP_LOCK_TTL < SHOP_LOCK_WAIT
    """
    ttl = settings.SHOP_LOCK_TTL
    max_hold = settings.SHOP_LOCK_MAX_HOLD
    statement_seconds = settings.DB_TIMEOUTS_MS["statement_timeout"] / 1000
    if statement_seconds >= ttl:
        yield Warning(
            f"SHOP_LOCK_TTL is {ttl} s, but a statement may take {statement_seconds} s: the lock "
            "of a stuck buyer expires before PostgreSQL cancels the statement.",
            hint=f"Set SHOP_LOCK_TTL above {statement_seconds} s.",
            id="shop.W001",
        )
    if not max_hold >= ttl:  # written so that NaN is refused, too
        yield Error(
            f"SHOP_LOCK_MAX_HOLD is {max_hold} s, less than SHOP_LOCK_TTL, which is {ttl} s: every "
            "purchase under RedisLock would fail.",
            hint="Set SHOP_LOCK_MAX_HOLD to at least SHOP_LOCK_TTL.",
            id="shop.E011",
        )
        return
    if max_hold <= statement_seconds:
        yield Warning(
            f"SHOP_LOCK_MAX_HOLD is {max_hold} s, but a statement may take {statement_seconds} s: "
            "the lock is no longer renewed while its holder may still finish.",
            hint="Set SHOP_LOCK_MAX_HOLD above the statement timeout.",
            id="shop.W010",
        )
    if max_hold + ttl >= settings.SHOP_LOCK_WAIT:
        yield Warning(
            f"A holder that hangs blocks other buyers for {max_hold + ttl} s (SHOP_LOCK_MAX_HOLD + "
            f"SHOP_LOCK_TTL), but a buyer waits only {settings.SHOP_LOCK_WAIT} s (SHOP_LOCK_WAIT): "
            "all waiting buyers would be answered `busy`.",
            hint="Set SHOP_LOCK_WAIT above SHOP_LOCK_MAX_HOLD + SHOP_LOCK_TTL.",
            id="shop.W011",
        )


@register()
def check_lock(**kwargs: Any) -> Messages:
    """Check that SHOP_LOCK names a sound strategy. A demo may use any strategy.

    A strategy is sound if it neither oversells nor blocks all its buyers forever under any fault of
    the load test. Faults that no lock can survive do not count.
    """
    from shop.strategies import STRATEGIES  # imports models: only once the apps are ready

    strategy = STRATEGIES.get(settings.SHOP_LOCK)
    if settings.SHOP_DEMO or (strategy and strategy.sound):
        return
    if strategy and strategy.deferred:
        yield Warning(
            f"SHOP_LOCK is {settings.SHOP_LOCK!r}: buyers are answered `sold` before their "
            "orders are written to PostgreSQL. If Redis loses data before that, these orders are "
            "lost.",
            hint="Run manage.py settle all the time, set appendonly yes in Redis, and read "
            "Reservations in docs/production.md. Or set SHOP_LOCK to another strategy.",
            id="shop.W012",
        )
        return
    problem = "is not a strategy"
    if strategy:
        problem = "can oversell, or can block all buyers forever"
    sound_names = [name for name, strategy in STRATEGIES.items() if strategy.sound]
    yield Error(
        f"SHOP_LOCK is {settings.SHOP_LOCK!r}, which {problem}.",
        hint=f"Set SHOP_LOCK to one of {', '.join(sound_names)}.",
        id="shop.E012",
    )


def require_allowed_lock() -> None:
    """Raise ImproperlyConfigured if check_lock() reports an error.

    Every process that serves requests calls this, because only manage.py runs system checks.
    """
    for message in check_lock():
        if message.is_serious(ERROR):
            raise ImproperlyConfigured(f"{message.msg} {message.hint}")


# --- servers ------------------------------------------------------------------------------------


@register(Tags.database)
def check_database(**kwargs: Any) -> Messages:
    """Check that the database is PostgreSQL or, in a demo, another that the shop supports."""
    engine = settings.DATABASES["default"].get("ENGINE", "")
    if engine != POSTGRESQL and not (settings.SHOP_DEMO and engine in DEMO_DATABASES):
        yield Error(
            f"The database is {engine or 'not set'}, not PostgreSQL.",
            hint="Set DATABASE_URL=postgresql://..., or use manage.py, which starts a PostgreSQL.",
            id="shop.E001",
        )


@register()
def check_server_settings(**kwargs: Any) -> Messages:
    """Check that transactions begin inside locks, and no cache uses the locks' Redis database."""
    if settings.DATABASES["default"].get("ATOMIC_REQUESTS"):
        yield Error(
            "ATOMIC_REQUESTS is on: it begins the transaction before the lock is taken and commits "
            "after the lock is released, so that the next buyer reads the old stock.",
            hint="Remove it: every strategy opens its own transaction inside its lock.",
            id="shop.E002",
        )
    try:
        cache_database = _parse_server_and_database(settings.CACHES["default"]["LOCATION"])
        locks_database = _parse_server_and_database(settings.CACHES["locks"]["LOCATION"])
    except ValueError as error:
        yield Error(
            f"REDIS_URL or REDIS_LOCKS_URL cannot be read: {error}.",
            hint="Use redis://host:6379/0, rediss://... or unix:///path/to/socket?db=0.",
            id="shop.E005",
        )
        return
    if cache_database == locks_database:
        yield Error(
            "The caches `default` and `locks` use the same Redis database: cache.clear() would "
            "delete every lock. If their URLs are equal, they also share one connection pool.",
            hint="Set REDIS_LOCKS_URL to another database number or another server.",
            id="shop.E003",
        )


def _parse_server_and_database(url: str) -> tuple[Any, ...]:
    """Return the server and the database of a Redis URL, with defaults for parts that it omits."""
    parts: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
    server = parts.get("path") or (parts.get("host", "localhost"), parts.get("port", 6379))
    return server, parts.get("db", 0)


@register(deploy=True)
def check_eviction(**kwargs: Any) -> Messages:
    """Check the eviction policy of the locks' Redis.

    If Redis does not answer, there is no warning here: `manage.py check_stack` reports that.
    """
    from shop.ops.redis import locks_client  # only once the apps are ready

    try:
        policy = locks_client().info("memory")["maxmemory_policy"]
    except (RedisError, OSError, KeyError):  # KeyError: the server does not report its policy
        return
    if policy != "noeviction":
        yield Warning(
            f"The locks' Redis has maxmemory-policy {policy}: if it runs out of memory, it may "
            "delete locks that are held.",
            hint="Set maxmemory-policy noeviction there, and use another server for caches.",
            id="shop.W003",
        )


# --- production ---------------------------------------------------------------------------------

#: Setting that production needs -> the effect if it is missing, and a hint.
REQUIRED_SETTINGS = {
    "SECRET_KEY": (
        "every process generates a key, and a user is logged out when another process answers",
        'Generate one: python -c "import secrets; print(secrets.token_urlsafe(64))". Set '
        "SECRET_KEY to it, or SECRET_KEY_FILE to the path of a file that contains it.",
    ),
    "ALLOWED_HOSTS": (
        "the shop answers only requests to localhost",
        "Set the shop's public host names, comma-separated: ALLOWED_HOSTS=shop.example.com.",
    ),
    "DATABASE_URL": (
        "the shop has no database, or uses the PostgreSQL for demos that manage.py starts",
        "Set DATABASE_URL=postgresql://user@host:5432/name?sslmode=verify-full, and PGPASSFILE to "
        "the path of a file with the password.",
    ),
    "REDIS_URL": (
        "the shop has no Redis for its locks, or uses the one for demos that manage.py starts",
        "Set REDIS_URL=rediss://host:6379/0, and REDIS_PASSWORD_FILE to the path of a file with "
        "the password.",
    ),
}


@register(Tags.security, deploy=True)
def check_production(**kwargs: Any) -> Messages:
    """Check that SHOP_DEMO is off, and that the required settings are set and safe."""
    if settings.SHOP_DEMO:
        yield Error(
            "SHOP_DEMO is on: any buyer can hold a lock, inject faults, and buy with strategy code "
            "loaded from the files in SHOP_DEMO_STRATEGIES.",
            hint="Unset SHOP_DEMO.",
            id="shop.E004",
        )
        return  # the other settings do not matter in a demo
    for name in settings.MISSING_SETTINGS:
        if name == "REDIS_URL" and settings.REDIS_SENTINELS:
            continue  # the Sentinels name the Redis server
        effect, hint = REQUIRED_SETTINGS[name]
        yield Error(f"{name} is not set: {effect}.", hint=hint, id="shop.E007")
    for host in settings.ALLOWED_HOSTS:
        if host.strip() in {"*", "."}:
            yield Error(
                f"ALLOWED_HOSTS contains {host!r}: a page of another site can send requests to the "
                "shop by DNS rebinding, and the shop builds absolute links from a Host header that "
                "the client can forge.",
                hint="List the shop's host names. Health checks need no entry: /healthz and "
                "/readyz also answer requests to the node's IP address.",
                id="shop.E008",
            )
    if not settings.HTTPS:
        yield Error(
            "HTTPS is off: session cookies and orders are sent unencrypted.",
            hint="Set HTTPS=1. If a reverse proxy terminates TLS and sets X-Forwarded-Proto and "
            "X-Forwarded-For, set SHOP_BEHIND_PROXY=1, too.",
            id="shop.E009",
        )
    for name in ("SHOP_RESTOCK_TOKEN", "METRICS_TOKEN"):
        if 0 < len(getattr(settings, name)) < MIN_TOKEN_CHARACTERS:
            yield Error(
                f"{name} has fewer than {MIN_TOKEN_CHARACTERS} characters and can be guessed.",
                hint=f"Use {MIN_TOKEN_CHARACTERS} characters or more: "
                'python -c "import secrets; '
                'print(secrets.token_urlsafe(32))". If it is unset, the endpoint that it protects '
                "is disabled.",
                id="shop.E010",
            )
