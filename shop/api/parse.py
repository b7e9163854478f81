"""What each request asks for: each parameter known and given once, each value bounded."""

import json
import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.http import HttpRequest, QueryDict
from django.http.multipartparser import MultiPartParserError
from django.http.request import UnreadablePostError

from shop.errors import BadInput, LengthRequired
from shop.ops.throttle import address_of
from shop.sale.purchase import Attempt
from shop.sale.strategy import STRATEGIES

#: The product that a request means when it names none: A1's own.
DEMO_PRODUCT = "apple"
PRODUCT_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
KEY = re.compile(r"[\x21-\x7e]{1,255}\Z")
#: Orders in one answer at most.
LONGEST_PAGE = 1_000
LARGEST_STOCK = 1_000_000
LARGEST_ID = 2**63 - 1
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
    request.META["shop.lock"] = lock  # for its line in the log
    return Attempt(
        product=parse_product(given),
        buyer=buyer,
        lock=lock,
        hold=_hold_ms(given) / 1000,
        key=key,
        sale=_integer_or_none(given, "sale", least=1, most=LARGEST_ID),
        address=address_of(request),
    )


def parse_restock(request: HttpRequest) -> tuple[str, int, str]:
    """The product and the stock of a new sale, and the strategy that will sell it."""
    given = parameters_of(request, {"product", "stock", "lock"})
    stock = integer_of(given, "stock", default=None, least=0, most=LARGEST_STOCK)
    return parse_product(given), stock, _lock(given)


def parse_product(given: Mapping[str, Any]) -> str:
    name = text_of(given, "product", default=DEMO_PRODUCT)
    if not PRODUCT_NAME.match(name):
        raise BadInput("bad product name", allowed=["1 to 64 letters, digits, - and _"])
    return name


def parse_buyers(request: HttpRequest) -> int | None:
    """How many buyers a report should count with, if it was asked to."""
    given = parameters_of(request, {"buyers", "product"})
    return _integer_or_none(given, "buyers", least=0, most=LARGEST_STOCK)


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


# --- parameters ----------------------------------------------------------------------------------


def parameters_of(request: HttpRequest, allowed: set[str]) -> dict[str, Any]:
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


def text_of(given: Mapping[str, Any], name: str, *, default: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        raise BadInput(f"{name} is not a text: {_short(value)}", allowed=["a text"])
    return value


def integer_of(
    given: Mapping[str, Any], name: str, *, default: int | None, least: int, most: int
) -> int:
    value = given.get(name, default)
    bounds = [f"a whole number from {least} to {most}"]
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(f"bad {name}: {_short(value)}", allowed=bounds)
    return value


def _integer_or_none(given: Mapping[str, Any], name: str, **bounds: int) -> int | None:
    return integer_of(given, name, default=None, **bounds) if name in given else None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 64 else f"{text[:61]}..."
