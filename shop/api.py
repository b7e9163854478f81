"""Requests in, JSON out: parsing, the bounds of every parameter, and errors as status codes."""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.http.multipartparser import MultiPartParserError
from django.http.request import UnreadablePostError
from django.views.decorators.csrf import csrf_exempt

from shop.connections import discard_dead
from shop.errors import BadInput, Forbidden, LengthRequired, ShopError, Unavailable
from shop.observability.current import note
from shop.purchase import Attempt
from shop.strategies import STRATEGIES

logger = logging.getLogger("shop.api")

#: The product that a request means when it names none: A1's own.
DEMO_PRODUCT = "apple"
PRODUCT_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
KEY = re.compile(r"[\x21-\x7e]{1,255}\Z")
LARGEST_STOCK = 1_000_000
LARGEST_ID = 2**63 - 1
#: Orders in one answer at most.
LONGEST_PAGE = 1_000
#: The types of a body that is read.
JSON = "application/json"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
#: Bytes of a body too large that are read to be thrown away, and in what portions.
LARGEST_DRAIN = 16 * 1024 * 1024
DRAIN_CHUNK = 64 * 1024
#: What JSON raises, and what forms and queries do.
UNREADABLE = (
    *(ValueError, RecursionError),
    *(MultiPartParserError, BadRequest, SuspiciousOperation),
)

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
            except ShopError as error:
                return refusal(error)
            except (OperationalError, InterfaceError) as error:
                logger.warning("%s: PostgreSQL: %s", request.path, error)
                discard_dead(error)
                return refusal(Unavailable("the database does not answer; nothing was changed"))

        # Reading changes nothing: another method is 405 here, and not 403 for want of a CSRF token.
        return csrf_exempt(answer) if method == "GET" else answer

    return decorate


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
    given = _parameters(request, {"product", "lock", "buyer", "hold_ms", "sale"})
    lock = _lock(given)
    buyer = _text(given, "buyer", default="")
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
    given = _parameters(request, {"product", "stock"})
    stock = _integer(given, "stock", default=None, least=0, most=LARGEST_STOCK)
    return parse_product(given), stock


def parse_product(given: Mapping[str, Any]) -> str:
    name = _text(given, "product", default=DEMO_PRODUCT)
    if not PRODUCT_NAME.match(name):
        raise BadInput("bad product name", allowed=["1 to 64 letters, digits, - and _"])
    return name


def parse_buyers(request: HttpRequest) -> int | None:
    """How many buyers a report should count with, if it was asked to."""
    given = _parameters(request, {"buyers", "product"})
    if "buyers" not in given:
        return None
    return _integer(given, "buyers", default=None, least=0, most=LARGEST_STOCK)


def parse_page(request: HttpRequest) -> tuple[int, int]:
    """Which orders are asked for: those after this number, and how many at most."""
    given = _parameters(request, {"after", "limit"})
    after = _integer(given, "after", default=0, least=0, most=LARGEST_ID)
    limit = _integer(given, "limit", default=LONGEST_PAGE, least=1, most=LONGEST_PAGE)
    return after, limit


def _parameters(request: HttpRequest, allowed: set[str]) -> dict[str, Any]:
    """Query and body together, the body first. A name that is unknown or given twice is refused,
    and so is a body that is not read: if `lok=redis`, or one of `lock=redis&lock=none`, were
    ignored, the sale would run unlocked."""
    given: dict[str, Any] = {}
    try:
        given.update(_once(_pairs(request.GET)))
        if request.method != "GET":  # a GET has no body, whatever its Content-Type says
            given.update(_body(request, allowed))
    except RequestDataTooBig as error:
        _drain(request)
        most = f"{settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes"
        raise BadInput("the body is too large", allowed=[most]) from error
    except UNREADABLE as error:
        raise BadInput(f"the request cannot be read: {error}", allowed=sorted(allowed)) from error
    except UnreadablePostError as error:
        raise BadInput("the body broke off") from error
    if unknown := set(given) - allowed:
        names = ", ".join(sorted(name[:64] for name in unknown))
        raise BadInput(f"unknown parameter: {names}", allowed=sorted(allowed))
    return given


def _drain(request: HttpRequest) -> None:
    """Read a body that is refused, within reason: a client that is cut off while it sends gets a
    broken pipe and not the answer."""
    for _ in range(0, LARGEST_DRAIN, DRAIN_CHUNK):
        if not request.read(DRAIN_CHUNK):
            return


def _body(request: HttpRequest, allowed: set[str]) -> dict[str, Any]:
    if "Transfer-Encoding" in request.headers:
        raise LengthRequired  # Django would read as much as Content-Length says: nothing
    body = request.body  # bounded; what request.POST reads of a multipart body is not
    if request.content_type == JSON:
        given = json.loads(body, object_pairs_hook=_once)
        if not isinstance(given, dict):
            raise BadInput("the JSON body is not an object", allowed=sorted(allowed))
        return given
    if body and request.content_type not in FORMS:
        wrong = f"a body of type {_short(request.content_type)} is not read"
        raise BadInput(wrong, allowed=[JSON, *FORMS])
    return _once(_pairs(request.POST)) | dict(request.FILES.items())


def _pairs(fields: QueryDict) -> list[tuple[str, Any]]:
    return [(name, value) for name, many in fields.lists() for value in many]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    given = dict(pairs)
    if len(given) < len(pairs):
        raise BadInput("a parameter is given twice", allowed=["each parameter once"])
    return given


def _text(given: Mapping[str, Any], name: str, *, default: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        raise BadInput(f"{name} is not a text: {_short(value)}", allowed=["a text"])
    return value


def _integer(
    given: Mapping[str, Any], name: str, *, default: int | None, least: int, most: int
) -> int:
    value = given.get(name, default)
    bounds = [f"a whole number from {least} to {most}"]
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(f"bad {name}: {_short(value)}", allowed=bounds)
    return value


def _lock(given: Mapping[str, Any]) -> str:
    """The strategy to sell under: the buyer's choice in a demo, the server's everywhere else."""
    if settings.SHOP_DEMO:
        lock = _text(given, "lock", default="none")
        if lock not in STRATEGIES:
            raise BadInput(f"unknown lock {lock[:64]!r}", allowed=STRATEGIES)
        return lock
    if _text(given, "lock", default=settings.SHOP_LOCK) != settings.SHOP_LOCK:
        raise BadInput(
            "the server chooses the lock: leave it out, or name its own",
            allowed=[settings.SHOP_LOCK],
        )
    return settings.SHOP_LOCK


def _hold_ms(given: Mapping[str, Any]) -> int:
    hold = _integer(given, "hold_ms", default=0, least=0, most=settings.SHOP_LONGEST_HOLD_MS)
    if "hold_ms" in given and not settings.SHOP_DEMO:
        raise BadInput("hold_ms works in a demo only: start the shop with SHOP_DEMO=1")
    return hold


def _sale(given: Mapping[str, Any]) -> int | None:
    if "sale" not in given:
        return None
    return _integer(given, "sale", default=None, least=1, most=LARGEST_ID)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 64 else f"{text[:61]}..."
