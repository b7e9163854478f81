"""SET NX PX with a token; GET, compare in the client, DEL.

FLAW: it may expire between GET and DEL (locks/classic/token_get_del.py tells how).
"""

from __future__ import annotations

from django.conf import settings

from locks import Lock
from locks.classic.token_get_del import TokenGetDelLock
from shop.purchase import Attempt
from shop.strategies.locked import locks_client, sell_under
from shop.strategies.registry import Strategy


def lock_for(attempt: Attempt) -> Lock:
    return TokenGetDelLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="token-get-del",
    title="Token, GET then DEL",
    article="A0 A1 A2",
    summary="Compares in the client: expired between GET and DEL, it deletes another's.",
    buy=sell_under(lock_for),
    expected={"rush": "exact"},
)
