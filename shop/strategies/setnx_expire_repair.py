"""SETNX, then EXPIRE; whoever finds it without a ttl gives it one.

FLAW: a late DEL frees the next one's lock (locks/classic/setnx_expire_repair.py tells how).
"""

from __future__ import annotations

from django.conf import settings

from locks import Lock
from locks.classic.setnx_expire_repair import SetnxExpireRepairLock
from shop.purchase import Attempt
from shop.strategies.locked import locks_client, sell_under
from shop.strategies.registry import Strategy


def lock_for(attempt: Attempt) -> Lock:
    return SetnxExpireRepairLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="setnx-expire-repair",
    title="SETNX, EXPIRE, repaired",
    article="A0",
    summary="Whoever finds it without a ttl gives it one; a late DEL still frees another's.",
    buy=sell_under(lock_for),
    expected={"rush": "exact"},
)
