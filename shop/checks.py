"""System checks: what makes a shop oversell or lose its locks, seen before it opens."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from redis.connection import parse_url
from redis.exceptions import RedisError

CACHE_ALIASES = ("default", "locks")
#: Characters of a bearer token.
SHORTEST_TOKEN = 24


@register(Tags.database)
def the_database_is_postgresql(**kwargs: Any) -> list[CheckMessage]:
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
def a_lock_encloses_the_commit(**kwargs: Any) -> list[CheckMessage]:
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
def the_locks_have_a_redis_database_of_their_own(**kwargs: Any) -> list[CheckMessage]:
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


@register()
def redis_evicts_no_lock(**kwargs: Any) -> list[CheckMessage]:
    """Asks the locks' Redis; one that does not answer is for `check_stack` to tell of."""
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
def a_statement_ends_before_its_lock(**kwargs: Any) -> list[CheckMessage]:
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
def a_holder_that_hangs_does_not_keep_others_out_for_ever(**kwargs: Any) -> list[CheckMessage]:
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
                "told `busy`.",
                hint="Keep SHOP_LOCK_MAX_HOLD + SHOP_LOCK_TTL < SHOP_LOCK_WAIT.",
                id="shop.W011",
            )
        )
    return messages


@register()
def every_patience_is_positive(**kwargs: Any) -> list[CheckMessage]:
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


@register(Tags.security, deploy=True)
def no_demo_in_production(**kwargs: Any) -> list[CheckMessage]:
    if not settings.SHOP_DEMO:
        return []
    return [
        Error(
            "SHOP_DEMO is on: any buyer can hold the lock and inject faults.",
            hint="Unset SHOP_DEMO.",
            id="shop.E004",
        )
    ]


#: What is wrong where a setting that production needs was left out, and what to do.
LEFT_OUT = {
    "SECRET_KEY": (
        "every process makes up its own, and nobody stays logged in",
        'python -c "import secrets; print(secrets.token_urlsafe(64))" makes one; SECRET_KEY_FILE '
        "names a file that holds it.",
    ),
    "ALLOWED_HOSTS": (
        "the shop answers to localhost alone",
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
def what_production_needs_is_set(**kwargs: Any) -> list[CheckMessage]:
    if settings.SHOP_DEMO:
        return []  # no_demo_in_production says so
    missing = [
        Error(f"{name} is not set: {LEFT_OUT[name][0]}.", hint=LEFT_OUT[name][1], id="shop.E007")
        for name in settings.MISSING
        if not (name == "REDIS_URL" and settings.REDIS_SENTINELS)
    ]
    return [*missing, *_open_to_every_host(), *_not_encrypted(), *_guessable()]


def _open_to_every_host() -> list[CheckMessage]:
    wide = [host for host in settings.ALLOWED_HOSTS if host.strip() in {"*", "."}]
    if not wide:
        return []
    return [
        Error(
            f"ALLOWED_HOSTS contains {wide[0]!r}: a foreign page can talk to the shop by DNS "
            "rebinding, and links that the shop makes lead to any host that a client claims.",
            hint="List the shop's names. /healthz and /readyz answer under any, for probes by IP.",
            id="shop.E008",
        )
    ]


def _not_encrypted() -> list[CheckMessage]:
    if settings.HTTPS:
        return []
    return [
        Error(
            "HTTPS is off: sessions and orders travel in the clear.",
            hint="Set HTTPS=1, and SHOP_BEHIND_PROXY=1 where a proxy ends TLS and sets "
            "X-Forwarded-Proto and X-Forwarded-For.",
            id="shop.E009",
        )
    ]


def _guessable() -> list[CheckMessage]:
    return [
        Error(
            f"{name} is short enough to be guessed.",
            hint='Use 24 characters or more: python -c "import secrets; '
            'print(secrets.token_urlsafe(32))". Unset, what it opens is closed.',
            id="shop.E010",
        )
        for name in ("SHOP_RESTOCK_TOKEN", "METRICS_TOKEN")
        if 0 < len(getattr(settings, name)) < SHORTEST_TOKEN
    ]
