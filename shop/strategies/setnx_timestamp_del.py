"""The value is the time at which it ends; expired, it is deleted and taken with SETNX.

FLAW: two contenders who both saw it expired both have it
(locks/classic/setnx_timestamp_del.py tells how).
"""

from __future__ import annotations

from django.conf import settings

from locks import Lock
from locks.classic.setnx_timestamp_del import SetnxTimestampDelLock
from shop.purchase import Attempt
from shop.strategies.locked import locks_client, sell_under
from shop.strategies.registry import Strategy


def lock_for(attempt: Attempt) -> Lock:
    return SetnxTimestampDelLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="setnx-timestamp-del",
    title="Timestamp, DEL then SETNX",
    article="A4",
    summary="Expired, it is deleted and taken: two contenders at once both have it.",
    buy=sell_under(lock_for),
    expected={"rush": "exact"},
)
