"""System checks of a sale: its lock, its timeouts, its waiting room, seen before the shop opens.

Those of the servers and of production are in shop/ops.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import ERROR, CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured


@register()
def check_statement_timeout(**kwargs: Any) -> Iterator[CheckMessage]:
    statement = settings.DB_TIMEOUTS_MS["statement_timeout"] / 1000
    if statement >= settings.SHOP_LOCK_TTL:
        yield Warning(
            f"SHOP_LOCK_TTL is {settings.SHOP_LOCK_TTL} s, a statement may take {statement} s: "
            "a stuck holder outlives its lock.",
            hint="Keep idle-in-transaction < lock < statement timeout < SHOP_LOCK_TTL.",
            id="shop.W001",
        )


@register()
def check_max_hold(**kwargs: Any) -> Iterator[CheckMessage]:
    ttl, most = settings.SHOP_LOCK_TTL, settings.SHOP_LOCK_MAX_HOLD
    statement = settings.DB_TIMEOUTS_MS["statement_timeout"] / 1000
    if not most >= ttl:
        yield Error(
            f"SHOP_LOCK_MAX_HOLD is {most} s, less than SHOP_LOCK_TTL, {ttl} s: every purchase "
            "under RedisLock would fail.",
            hint="Give seconds, at least SHOP_LOCK_TTL.",
            id="shop.E011",
        )
        return
    if most <= statement:
        yield Warning(
            f"SHOP_LOCK_MAX_HOLD is {most} s, a statement may take {statement} s: a holder "
            "that would still finish is renewed no more.",
            hint="Keep statement timeout < SHOP_LOCK_MAX_HOLD.",
            id="shop.W010",
        )
    if most + ttl >= settings.SHOP_LOCK_WAIT:
        yield Warning(
            f"A holder that hangs keeps others out for {most + ttl} s (SHOP_LOCK_MAX_HOLD + "
            f"SHOP_LOCK_TTL), a buyer waits {settings.SHOP_LOCK_WAIT} s: all of them would be "
            "answered `busy`.",
            hint="Keep SHOP_LOCK_MAX_HOLD + SHOP_LOCK_TTL < SHOP_LOCK_WAIT.",
            id="shop.W011",
        )


@register()
def check_timeouts(**kwargs: Any) -> Iterator[CheckMessage]:
    for name in ("SHOP_LOCK_TTL", "SHOP_TOKEN_TTL", "SHOP_LOCK_WAIT"):
        if not getattr(settings, name) > 0:
            yield Error(
                f"{name} is {getattr(settings, name)!r}: every purchase would fail.",
                hint="Give seconds, more than 0.",
                id="shop.E006",
            )


@register()
def check_waiting_room(**kwargs: Any) -> Iterator[CheckMessage]:
    for name in ("SHOP_MAX_PURCHASES", "SHOP_MAX_WAITING"):
        if getattr(settings, name) < 0:
            yield Error(
                f"{name} is {getattr(settings, name)}: every purchase would be refused.",
                hint="Give a number of buyers, 0 for no limit.",
                id="shop.E020",
            )
    most, threads = settings.SHOP_MAX_PURCHASES, settings.WEB_THREADS
    waits_in_threads = os.environ.get("WEB_SERVER", "") != "asgi"
    if most > threads - settings.SPARE_THREADS and waits_in_threads:
        yield Warning(
            f"SHOP_MAX_PURCHASES is {most} and a process has {threads} threads: pages and "
            "health checks would wait behind purchases.",
            hint=f"Keep it at least {settings.SPARE_THREADS} below WEB_THREADS.",
            id="shop.W020",
        )


@register()
def the_servers_lock_is_sound(**kwargs: Any) -> Iterator[CheckMessage]:
    from shop.strategies import STRATEGIES  # models: not before the apps are ready

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
    wrong = "oversells or can stop for good" if strategy else "is no strategy"
    yield Error(
        f"SHOP_LOCK is {settings.SHOP_LOCK!r}, which {wrong}.",
        hint="Set SHOP_LOCK to one of "
        f"{', '.join(name for name, one in STRATEGIES.items() if one.sound)}.",
        id="shop.E012",
    )


def refuse_to_start() -> None:
    """Refuse what a shop must not sell with, in every process that serves: system checks stop only
    manage.py. Raises ImproperlyConfigured."""
    for wrong in the_servers_lock_is_sound():
        if wrong.is_serious(ERROR):
            raise ImproperlyConfigured(f"{wrong.msg} {wrong.hint}")
