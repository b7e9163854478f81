"""A1's own lock: SET NX PX with a token for 3 s, asked for again every 100 ms.

FLAW: a holder slower than the ttl loses it (locks/classic/token.py tells how).
"""

from __future__ import annotations

from django.conf import settings

from locks import Lock
from locks.classic.token import TokenLock
from shop.purchase import Attempt
from shop.strategies.locked import locks_client, sell_under
from shop.strategies.registry import Strategy, verdicts


def lock_for(attempt: Attempt) -> Lock:
    return TokenLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_TOKEN_TTL, retry=0.1)


STRATEGY = Strategy(
    name="token",
    title="SET NX PX with a token",
    article="A0 A1 A4",
    summary="The lock has an owner and an end; a holder slower than its ttl loses it unawares.",
    buy=sell_under(lock_for),
    expected=verdicts(
        exact="rush crash late-release lost-reply unknown-commit busy redis-down db-kill shutdown",
        oversold="slow pause restart failover eviction",
    ),
)
