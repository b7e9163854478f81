"""SET NX PX with a token, and a thread that renews it.

FLAW: a process that is paused, or a Redis that forgets (locks/classic/token_watchdog.py tells how).
"""

from __future__ import annotations

from django.conf import settings

from locks import Lock
from locks.classic.token_watchdog import TokenWatchdogLock
from shop.purchase import Attempt
from shop.strategies.locked import locks_client, sell_under
from shop.strategies.registry import Strategy


def lock_for(attempt: Attempt) -> Lock:
    return TokenWatchdogLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="token-watchdog",
    title="Token with a watchdog",
    article="A2 A4",
    summary="A thread renews it while the holder works; a paused process renews nothing.",
    buy=sell_under(lock_for),
    expected={"rush": "exact"},
)
