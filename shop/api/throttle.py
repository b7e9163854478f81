"""The rate limiter of the article A3 in one Lua script: n attempts per address in a window.

It is off unless BUY_RATE_LIMIT is set, as to 3/10s. The clock is the server's own. Attempts are
counted by address, because a visitor can choose any buyer's name: a count per name would let a
visitor use up the attempts of others, and start again under a new name. Refused requests count.
"""

import logging
from ipaddress import IPv6Address, ip_address
from math import ceil

import redis
from django.conf import settings
from django.http import HttpRequest

from shop.errors import Throttled, Unavailable
from shop.lua import lua
from shop.ops.redis import locks_client

logger = logging.getLogger("shop.api.throttle")

#: Bits of an IPv6 address that a visitor can choose: a household gets at least this many.
IPV6_HOST_BITS = 64


def admit(request: HttpRequest) -> None:
    """Count one attempt of the request's address against BUY_RATE_LIMIT, which must be set.

    Raises Throttled when the address has had too many, and Unavailable when Redis does not answer,
    so that an outage admits no buyer.
    """
    assert settings.BUY_RATE_LIMIT is not None
    attempts, window_seconds = settings.BUY_RATE_LIMIT
    key = f"throttle:{group_address(read_address(request))}"
    try:
        wait_ms = lua("throttle")(locks_client(), [key], [attempts, round(window_seconds * 1000)])
    except redis.RedisError as error:
        logger.warning("the rate limit's server: %s", error)
        raise Unavailable("the lock's server does not answer; nothing was sold") from error
    if wait_ms:
        raise Throttled(seconds=ceil(wait_ms / 1000))


def read_address(request: HttpRequest) -> str:
    """Return the address of the client; empty for a Unix socket."""
    if settings.SHOP_BEHIND_PROXY:
        # The proxy wrote the last entry; the client may have made up the entries before it.
        return str(request.headers.get("X-Forwarded-For", "")).rpartition(",")[2].strip()
    return str(request.META.get("REMOTE_ADDR", ""))


def group_address(address: str) -> str:
    """Return the name under which an address is counted.

    It is the IPv4 address or the network of the IPv6 address. Everything else (a Unix socket, a
    proxy that names no address) is counted under one name.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped or IPv6Address(int(parsed) >> IPV6_HOST_BITS << IPV6_HOST_BITS))
    return str(parsed)
