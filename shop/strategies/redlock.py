"""Redlock: the votes of a majority of independent servers.

FLAW: a holder slower than the ttl, a paused process, a server that restarts empty
(see locks/classic/redlock.py).
"""

from __future__ import annotations

from functools import cache

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from locks import Lock
from locks.classic.redlock import RedlockLock
from shop.errors import Unavailable
from shop.sale.locked import sell_under
from shop.sale.purchase import Attempt
from shop.sale.strategy import Strategy


@cache
def clients() -> list[redis.Redis]:
    """One per server. A server that is cut off must not cost a large part of the ttl."""
    timeout = min(0.5, settings.SHOP_LOCK_TTL / 10)
    return [
        redis.Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            max_connections=settings.SHOP_REDIS_POOL,
        )
        for url in settings.REDLOCK_URLS
    ]


def lock_for(attempt: Attempt) -> Lock:
    if not settings.REDLOCK_URLS:
        raise Unavailable("Redlock needs its servers: set REDLOCK_URLS; nothing was sold")
    return RedlockLock(clients(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="redlock",
    title="Redlock",
    article="A1 A4",
    summary="A majority of five servers: one may fail, but a slow or paused holder still loses it.",
    buy=sell_under(lock_for),
    needs="REDLOCK_URLS",
    backend="redlock",
)
