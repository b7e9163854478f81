"""SETNX, then EXPIRE, and DEL at the end.

FLAW: a crash between the two leaves it locked for ever; a late DEL frees the next one's
(locks/classic/setnx_expire.py tells how).
"""

from __future__ import annotations

from django.conf import settings

from locks import Lock
from locks.classic.setnx_expire import SetnxExpireLock
from shop.purchase import Attempt
from shop.strategies.locked import locks_client, sell_under
from shop.strategies.registry import Strategy


def lock_for(attempt: Attempt) -> Lock:
    return SetnxExpireLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="setnx-expire",
    title="SETNX, then EXPIRE",
    article="A2 A4",
    summary="Two steps: a crash between them locks it for ever, a late DEL frees another's.",
    buy=sell_under(lock_for),
    expected={"rush": "exact"},
)
