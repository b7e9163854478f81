"""The admin's login, throttled in Redis for all nodes together.

The shop's own limiter and not django-axes: that one counts a failure after the password was
checked, so a burst of guesses passes, and keeps its counts in the shop's database. Here an attempt
is counted before, and taken back when it was right.

An address is refused after ADMIN_LOGIN_LIMIT, and then counts for no account any more: knowing a
name is not enough to lock its owner out. An account is refused after ACCOUNT_FACTOR times as many,
from however many addresses.
"""

from __future__ import annotations

import ipaddress
import logging
import unicodedata
from hashlib import sha256
from math import ceil
from typing import Any

import redis
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from locks.scripts import script
from shop.ops.redis import locks_client
from shop.ops.throttle import address_of

logger = logging.getLogger("shop.admin")

#: Attempts at one account in a window, in windows of one address.
ACCOUNT_FACTOR = 4
#: An IPv6 customer has at least a network of this size.
IPV6_NETWORK = 64


class ShopAdminSite(admin.AdminSite):
    """The admin, with a throttled login. 429 when there were too many failures, 503 while Redis
    does not answer: no answer is no admission."""

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "POST":
            return super().login(request, extra_context)
        keys = _keys(request)
        try:
            wait = _count(keys)
        except redis.RedisError as error:
            logger.warning("login refused, Redis does not answer: %s", error)
            return _refusal("Logins are closed while Redis does not answer.", 503, seconds=1)
        if wait:
            seconds = ceil(wait / 1000)
            logger.warning("login refused, too many failures: again in %s s", seconds)
            message = f"Too many failed logins. Try again in {seconds} seconds."
            return _refusal(message, 429, seconds=seconds)
        answer = super().login(request, extra_context)
        if answer.status_code == 302:
            _take_back(keys)
        return answer


def _keys(request: HttpRequest) -> list[str]:
    """What an attempt is counted under. One hash tag, so that a cluster has both in one slot."""
    name = unicodedata.normalize("NFKC", request.POST.get("username", "")).strip().casefold()
    account = sha256(name.encode()).hexdigest()[:32]  # people type passwords there
    return [f"throttle:{{admin}}:{kind}" for kind in (_network(address_of(request)), account)]


def _network(address: str) -> str:
    """The address; of an IPv6 one its network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"  # a Unix socket has none: all of them are one
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:  # what a socket for both calls an IPv4 address
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), IPV6_NETWORK), strict=False))


def _count(keys: list[str]) -> int:
    """Count an attempt; milliseconds to wait if it is refused, else 0. Raises RedisError."""
    most, window = settings.ADMIN_LOGIN_LIMIT
    limits: list[str | int] = [round(window * 1000), most, most * ACCOUNT_FACTOR]
    return int(script("login_attempt", settings.SHOP_LUA)(locks_client(), keys, limits))


def _take_back(keys: list[str]) -> None:
    try:
        script("login_succeeded", settings.SHOP_LUA)(locks_client(), keys, [])
    except redis.RedisError as error:
        logger.warning("a successful login stays counted, Redis does not answer: %s", error)


def _refusal(text: str, status: int, *, seconds: int) -> HttpResponse:
    headers = {"Retry-After": str(seconds), "Cache-Control": "no-store"}
    return HttpResponse(text, status=status, content_type="text/plain", headers=headers)
