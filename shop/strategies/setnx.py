"""SETNX, and DEL at the end.

FLAW: a crash leaves it locked for ever (locks/classic/setnx.py tells how).
"""

from __future__ import annotations

from django.conf import settings

from locks import Lock
from locks.classic.setnx import SetnxLock
from shop.purchase import Attempt
from shop.strategies.locked import locks_client, sell_under
from shop.strategies.registry import Strategy


def lock_for(attempt: Attempt) -> Lock:
    return SetnxLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="setnx",
    title="SETNX, DEL",
    article="A0 A2 A4",
    summary="No end of its own: a holder that crashes leaves it locked for ever.",
    buy=sell_under(lock_for),
    expected={"rush": "exact"},
)
