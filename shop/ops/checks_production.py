"""System checks of a shop that is no demo: manage.py check --deploy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register

#: Characters of a bearer token.
SHORTEST_TOKEN = 24


@register(Tags.security, deploy=True)
def check_no_demo(**kwargs: Any) -> Iterator[CheckMessage]:
    if settings.SHOP_DEMO:
        yield Error(
            "SHOP_DEMO is on: any buyer can hold the lock, inject faults, and sell under files "
            "of SHOP_DEMO_STRATEGIES.",
            hint="Unset SHOP_DEMO.",
            id="shop.E004",
        )


#: What is wrong where a setting that production needs was left out, and what to do.
LEFT_OUT = {
    "SECRET_KEY": (
        "every process makes up its own, and nobody stays logged in",
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
def what_production_needs_is_set(**kwargs: Any) -> Iterator[CheckMessage]:
    if settings.SHOP_DEMO:
        return  # check_no_demo says so
    for name in settings.MISSING:
        if not (name == "REDIS_URL" and settings.REDIS_SENTINELS):
            wrong, hint = LEFT_OUT[name]
            yield Error(f"{name} is not set: {wrong}.", hint=hint, id="shop.E007")
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
        if 0 < len(getattr(settings, name)) < SHORTEST_TOKEN:
            yield Error(
                f"{name} is short enough to be guessed.",
                hint='Use 24 characters or more: python -c "import secrets; '
                'print(secrets.token_urlsafe(32))". Unset, what it opens is closed.',
                id="shop.E010",
            )
