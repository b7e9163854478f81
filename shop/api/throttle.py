"""The rate limiter of article A3 in one Lua script: n attempts per address in a time window.

It is off unless BUY_RATE_LIMIT is set, for example to 3/10s. The clock is that of Redis. Attempts
are counted by address, because a visitor can choose any buyer's name. With a count per name a
visitor could use up the attempts of other buyers, and start again under a new name. A purchase that
the shop refuses, for example because no unit is left, counts, too. Attempts above the limit and
unreadable requests do not count.
"""

import logging
from ipaddress import IPv6Address, ip_address
from math import ceil

import redis
from django.conf import settings
from django.http import HttpRequest

from shop.errors import Throttled, Unavailable
from shop.lua import lua_script
from shop.ops.redis import locks_client

logger = logging.getLogger("shop.api.throttle")

#: Last bits of an IPv6 address, which a visitor can choose: a household gets all 2**64 addresses of
#: a network.
IPV6_HOST_BITS = 64


def enforce_rate_limit(request: HttpRequest) -> None:
    """Count an attempt of the client's IP address, if BUY_RATE_LIMIT allows one more.

    Raises Throttled if the address has made too many attempts. Raises Unavailable if Redis does not
    answer, because an outage must not lift the limit.
    """
    assert settings.BUY_RATE_LIMIT is not None
    max_attempts, window_seconds = settings.BUY_RATE_LIMIT
    window_ms = round(window_seconds * 1000)
    key = f"throttle:{get_address_group(read_address(request))}"
    try:
        wait_ms = lua_script("throttle")(locks_client(), [key], [max_attempts, window_ms])
    except redis.RedisError as error:
        logger.warning("the rate limit's Redis does not answer: %s", error)
        raise Unavailable(
            "the rate limit's server does not answer; nothing was sold: retry with the same key"
        ) from error
    if wait_ms:
        raise Throttled(seconds=ceil(wait_ms / 1000))


def read_address(request: HttpRequest) -> str:
    """Return the address of the client; empty for a Unix socket."""
    if settings.SHOP_BEHIND_PROXY:
        # The proxy wrote the last entry; the client may have made up the entries before it.
        return str(request.headers.get("X-Forwarded-For", "")).rpartition(",")[2].strip()
    return str(request.META.get("REMOTE_ADDR", ""))


def get_address_group(address: str) -> str:
    """Return the name under which the rate limit counts the purchase attempts of an address.

    It is the IPv4 address, or the network of the IPv6 address. All requests without an address, as
    over a Unix socket, share one name.
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        network = int(ip) >> IPV6_HOST_BITS
        return str(IPv6Address(network << IPV6_HOST_BITS))
    return str(ip)
