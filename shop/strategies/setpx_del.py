"""SET NX PX, and plain DEL at the end.

FLAW: a late DEL frees the next one's lock (locks/classic/setpx_del.py tells how).
"""

from __future__ import annotations

from django.conf import settings

from locks import Lock
from locks.classic.setpx_del import SetpxDelLock
from shop.purchase import Attempt
from shop.strategies.locked import locks_client, sell_under
from shop.strategies.registry import Strategy


def lock_for(attempt: Attempt) -> Lock:
    return SetpxDelLock(locks_client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="setpx-del",
    title="SET NX PX, plain DEL",
    article="A0 A2",
    summary="Atomic with its ttl, but whoever is late deletes the next holder's lock.",
    buy=sell_under(lock_for),
    expected={"rush": "exact"},
)
