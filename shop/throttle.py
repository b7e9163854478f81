"""A3's rate limiter in one Lua script: at most n attempts in a window, per buyer and per address.

Off unless BUY_RATE_LIMIT says, for instance, 3/10s. The clock is the server's own.
"""

from __future__ import annotations

from math import ceil

from django.conf import settings

from locks.scripts import script
from shop.errors import Throttled
from shop.redis import locks_client


def admit(*, buyer: str, address: str) -> None:
    """Count one attempt. Raises Throttled when the buyer or the address has had too many, and
    redis.RedisError when Redis does not answer: no answer is no admission."""
    if settings.BUY_RATE_LIMIT is None:
        return
    most, window = settings.BUY_RATE_LIMIT
    keys = [f"throttle:buyer:{buyer}", f"throttle:address:{address}"]
    wait = script("throttle", settings.SHOP_LUA)(locks_client(), keys, [most, round(window * 1000)])
    if wait:
        raise Throttled(seconds=ceil(wait / 1000))
