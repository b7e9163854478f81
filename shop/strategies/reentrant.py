"""Redisson's lock: counted holds, wake-up by publish, watchdog.

FLAW: a process that is paused, or a Redis that forgets (locks/classic/reentrant.py tells how).
"""

from __future__ import annotations

from django.conf import settings

from locks import Lock
from locks.classic.reentrant import ReentrantLock
from shop.purchase import Attempt
from shop.strategies.locked import locks_client, sell_under
from shop.strategies.registry import Strategy


def lock_for(attempt: Attempt) -> Lock:
    return ReentrantLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="reentrant",
    title="Redisson's reentrant lock",
    article="A0 A3",
    summary="Its owner may take it again, waiters are woken; a paused process loses it unawares.",
    buy=sell_under(lock_for),
    expected={"rush": "exact"},
)
