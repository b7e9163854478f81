"""The value is the time at which it ends, by the client's clock; GETSET takes it over.

FLAW: a contender whose clock is ahead steals it; it has no owner
(locks/classic/setnx_timestamp.py tells how).
"""

from __future__ import annotations

from django.conf import settings

from locks import Lock
from locks.classic.setnx_timestamp import SetnxTimestampLock
from shop.purchase import Attempt
from shop.strategies.locked import locks_client, sell_under
from shop.strategies.registry import Strategy


def lock_for(attempt: Attempt) -> Lock:
    return SetnxTimestampLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="setnx-timestamp",
    title="SETNX with a timestamp",
    article="A1 A4",
    summary="Its end is a time by the client's clock: one that is ahead steals a live lock.",
    buy=sell_under(lock_for),
    expected={"rush": "exact"},
)
