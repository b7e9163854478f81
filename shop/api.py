"""Requests in, JSON out: parsing, the bounds of every parameter, and errors as status codes."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from shop.connections import discard_dead
from shop.errors import BadInput, Forbidden, ShopError, Unavailable
from shop.observability.current import note
from shop.parameters import (
    LARGEST_ID,
    LARGEST_STOCK,
    PRODUCT_NAME,
    integer_of,
    parameters_of,
    text_of,
)
from shop.sale.purchase import Attempt
from shop.strategies import STRATEGIES

logger = logging.getLogger("shop.api")

#: The product that a request means when it names none: A1's own.
DEMO_PRODUCT = "apple"
KEY = re.compile(r"[\x21-\x7e]{1,255}\Z")
#: Orders in one answer at most.
LONGEST_PAGE = 1_000

#: What becomes an answer wherever a view raises it.
REFUSED = (ShopError, OperationalError, InterfaceError)

View = Callable[..., HttpResponse]


def endpoint(method: str) -> Callable[[View], View]:
    """A view for one method; every ShopError that it raises becomes the answer."""

    def decorate(view: View) -> View:
        @wraps(view)
        def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            allowed = ("GET", "HEAD") if method == "GET" else (method,)
            if request.method not in allowed:
                body = {"outcome": "error", "error": f"use {method}", "allowed": list(allowed)}
                return JsonResponse(body, status=405, headers={"Allow": ", ".join(allowed)})
            try:
                return view(request, *args, **kwargs)
            except REFUSED as error:
                return refused(request, error)

        # Reading changes nothing: another method is 405 here, and not 403 for want of a CSRF token.
        return csrf_exempt(answer) if method == "GET" else answer

    return decorate


def refused(request: HttpRequest, error: Exception) -> HttpResponse:
    """The answer for one of REFUSED."""
    if isinstance(error, ShopError):
        return refusal(error)
    assert isinstance(error, OperationalError | InterfaceError)
    logger.warning("%s: PostgreSQL: %s", request.path, error)
    discard_dead(error)
    return refusal(Unavailable("the database does not answer; nothing was changed"))


def refusal(error: ShopError) -> JsonResponse:
    """The one place where an error becomes a status code."""
    note(outcome=error.outcome)
    body: dict[str, Any] = {"outcome": error.outcome, "error": str(error)}
    if error.allowed is not None:
        body["allowed"] = error.allowed
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return JsonResponse(body, status=error.status, headers=headers)


def address_of(request: HttpRequest) -> str:
    """Where the request comes from; empty for a Unix socket."""
    if settings.SHOP_BEHIND_PROXY:
        # The last entry is our proxy's own; those before it are whatever the client claims.
        return str(request.headers.get("X-Forwarded-For", "")).rpartition(",")[2].strip()
    return str(request.META.get("REMOTE_ADDR", ""))


def has_token(request: HttpRequest) -> bool:
    """Whether the request carries the bearer token of the environment."""
    given = request.headers.get("Authorization", "")
    wanted = f"Bearer {settings.SHOP_RESTOCK_TOKEN}"
    right = secrets.compare_digest(given.encode(), wanted.encode())
    return bool(settings.SHOP_RESTOCK_TOKEN) and right


def require_token(request: HttpRequest) -> None:
    """Raises Forbidden for a request without the bearer token."""
    if not has_token(request):
        raise Forbidden


def parse_attempt(request: HttpRequest) -> Attempt:
    """The purchase that the request asks for. Raises BadInput, naming what is allowed."""
    given = parameters_of(request, {"product", "lock", "buyer", "hold_ms", "sale"})
    lock = _lock(given)
    buyer = text_of(given, "buyer", default="")
    if not 1 <= len(buyer) <= 255 or not buyer.isprintable():
        wrong = "bad buyer" if buyer else "buyer is missing: say who buys"
        raise BadInput(wrong, allowed=["1 to 255 printable characters"])
    key = request.headers.get("Idempotency-Key")
    if key is not None and not KEY.match(key):
        raise BadInput("bad Idempotency-Key", allowed=["1 to 255 printable ASCII characters"])
    return Attempt(
        product=parse_product(given),
        buyer=buyer,
        lock=lock,
        hold=_hold_ms(given) / 1000,
        key=key,
        sale=_sale(given),
    )


def parse_restock(request: HttpRequest) -> tuple[str, int]:
    """The product and the stock of a new sale."""
    given = parameters_of(request, {"product", "stock"})
    stock = integer_of(given, "stock", default=None, least=0, most=LARGEST_STOCK)
    return parse_product(given), stock


def parse_product(given: Mapping[str, Any]) -> str:
    name = text_of(given, "product", default=DEMO_PRODUCT)
    if not PRODUCT_NAME.match(name):
        raise BadInput("bad product name", allowed=["1 to 64 letters, digits, - and _"])
    return name


def parse_buyers(request: HttpRequest) -> int | None:
    """How many buyers a report should count with, if it was asked to."""
    given = parameters_of(request, {"buyers", "product"})
    if "buyers" not in given:
        return None
    return integer_of(given, "buyers", default=None, least=0, most=LARGEST_STOCK)


def parse_page(request: HttpRequest) -> tuple[int, int]:
    """Which orders are asked for: those after this number, and how many at most."""
    given = parameters_of(request, {"after", "limit"})
    after = integer_of(given, "after", default=0, least=0, most=LARGEST_ID)
    limit = integer_of(given, "limit", default=LONGEST_PAGE, least=1, most=LONGEST_PAGE)
    return after, limit


def _lock(given: Mapping[str, Any]) -> str:
    """The strategy to sell under: the buyer's choice in a demo, the server's everywhere else."""
    if settings.SHOP_DEMO:
        lock = text_of(given, "lock", default="none")
        if lock not in STRATEGIES:
            raise BadInput(f"unknown lock {lock[:64]!r}", allowed=STRATEGIES)
        return lock
    if text_of(given, "lock", default=settings.SHOP_LOCK) != settings.SHOP_LOCK:
        raise BadInput(
            "the server chooses the lock: leave it out, or name its own",
            allowed=[settings.SHOP_LOCK],
        )
    return settings.SHOP_LOCK


def _hold_ms(given: Mapping[str, Any]) -> int:
    hold = integer_of(given, "hold_ms", default=0, least=0, most=settings.SHOP_LONGEST_HOLD_MS)
    if "hold_ms" in given and not settings.SHOP_DEMO:
        raise BadInput("hold_ms works in a demo only: start the shop with SHOP_DEMO=1")
    return hold


def _sale(given: Mapping[str, Any]) -> int | None:
    if "sale" not in given:
        return None
    return integer_of(given, "sale", default=None, least=1, most=LARGEST_ID)
