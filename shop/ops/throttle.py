"""A3's rate limiter in one Lua script: at most n attempts in a window, per address.

Off unless BUY_RATE_LIMIT says, for instance, 3/10s. The clock is the server's own. Counted is what
a visitor cannot choose: a count per name that a buyer gives would let anybody use up another's
attempts, and have a new name's.
"""

from ipaddress import IPv6Address, ip_address
from math import ceil

from django.conf import settings
from django.http import HttpRequest

from shop.errors import Throttled
from shop.lua import lua
from shop.ops.redis import locks_client

#: Bits of an IPv6 address that a visitor can choose; a household is given at least this many.
OWN_BITS = 64


def admit(*, address: str) -> None:
    """Count one attempt. Raises Throttled when the address has had too many, and
    redis.RedisError when Redis does not answer: no answer is no admission."""
    if settings.BUY_RATE_LIMIT is None:
        return
    most, window = settings.BUY_RATE_LIMIT
    keys = [f"throttle:{visitor(address)}"]
    wait = lua("throttle")(locks_client(), keys, [most, round(window * 1000)])
    if wait:
        raise Throttled(seconds=ceil(wait / 1000))


def address_of(request: HttpRequest) -> str:
    """Where the request comes from; empty for a Unix socket."""
    if settings.SHOP_BEHIND_PROXY:
        # The last entry is our proxy's own; those before it are whatever the client claims.
        return str(request.headers.get("X-Forwarded-For", "")).rpartition(",")[2].strip()
    return str(request.META.get("REMOTE_ADDR", ""))


def visitor(address: str) -> str:
    """Who is counted: an IPv4 address, the network of an IPv6 one. All that is no address (a Unix
    socket, a proxy that names none) counts as one visitor."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped or IPv6Address(int(parsed) >> OWN_BITS << OWN_BITS))
    return str(parsed)
