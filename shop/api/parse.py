"""Parsing of requests. Unknown and repeated parameters are refused, and every value is limited.

The functions raise BadInput for a request that is not allowed.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.db import connection
from django.http import HttpRequest, QueryDict
from django.http.multipartparser import MultiPartParserError
from django.http.request import UnreadablePostError

from shop.errors import BadInput, LengthRequired, TooLarge, Unavailable
from shop.models import MAX_ID
from shop.ops.database import read_database_software
from shop.sale.purchase import Attempt
from shop.sale.strategy import STRATEGIES

#: The default product. The shop in article A1 (docs/sources.md) sells it.
DEFAULT_PRODUCT = "apple"
PRODUCT_NAME_PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
KEY_PATTERN = re.compile(r"[\x21-\x7e]{1,255}\Z")
MAX_PAGE_ORDERS = 1_000
MAX_STOCK = 1_000_000
JSON_TYPE = "application/json"
FORM_TYPES = ["application/x-www-form-urlencoded", "multipart/form-data"]
#: Maximum number of bytes that are read and discarded, in chunks, of a body that is too large.
MAX_DISCARDED_BYTES = 16 * 1024 * 1024
DISCARD_CHUNK_BYTES = 64 * 1024
#: ValueError and RecursionError come from a JSON body, the rest from forms and query strings.
UNREADABLE_ERRORS = (
    ValueError,
    RecursionError,
    MultiPartParserError,
    BadRequest,
    SuspiciousOperation,
)


def parse_attempt(request: HttpRequest) -> Attempt:
    """Return the attempt that a request describes, and set the request's `strategy_name`."""
    parameters = parse_parameters(request, {"product", "lock", "buyer", "hold_ms", "sale"})
    lock = _parse_strategy_name(parameters)
    buyer = _parse_buyer(parameters)
    key = parse_key(request)
    request.strategy_name = lock  # type: ignore[attr-defined]  # for the access line and metrics
    return Attempt(
        product=parse_product(parameters),
        buyer=buyer,
        lock=lock,
        payment_seconds=_parse_hold_ms(parameters) / 1000,
        key=key,
        sale=_parse_optional_integer(parameters, "sale", minimum=1, maximum=MAX_ID),
    )


def parse_restock(request: HttpRequest) -> tuple[str, int, str]:
    """Return the product and the stock of a new sale, and the strategy that will sell it."""
    parameters = parse_parameters(request, {"product", "stock", "lock"})
    stock = parse_integer(parameters, "stock", default=None, minimum=0, maximum=MAX_STOCK)
    return parse_product(parameters), stock, _parse_strategy_name(parameters)


def parse_key(request: HttpRequest) -> str | None:
    """Return the Idempotency-Key of a request, if it has one."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not KEY_PATTERN.match(key):
        raise BadInput("bad Idempotency-Key", allowed=["1 to 255 printable ASCII characters"])
    return key


def parse_product(parameters: Mapping[str, Any]) -> str:
    """Return the product of a request."""
    name = parse_string(parameters, "product", default=DEFAULT_PRODUCT)
    if not PRODUCT_NAME_PATTERN.match(name):
        raise BadInput(
            f"bad product name: {_make_short_repr(name)}",
            allowed=["1 to 64 letters, digits, - and _"],
        )
    return name


def parse_buyers(request: HttpRequest) -> int | None:
    """Return the parameter `buyers`, the number of buyers who tried to buy, or None without it.

    From this number a report computes `undersold`, the units that are left although buyers who
    tried to buy have no order.
    """
    # `product` is allowed, too, because the view reads it.
    parameters = parse_parameters(request, {"buyers", "product"})
    return _parse_optional_integer(parameters, "buyers", minimum=0, maximum=MAX_STOCK)


def parse_page(request: HttpRequest) -> tuple[int, int]:
    """Return the parameters `after` and `limit` of a page of orders.

    The page has at most `limit` orders, those with the lowest numbers above `after`.
    """
    parameters = parse_parameters(request, {"after", "limit"})
    after = parse_integer(parameters, "after", default=0, minimum=0, maximum=MAX_ID)
    limit = parse_integer(
        parameters, "limit", default=MAX_PAGE_ORDERS, minimum=1, maximum=MAX_PAGE_ORDERS
    )
    return after, limit


def _parse_buyer(parameters: Mapping[str, Any]) -> str:
    """Return the name of the buyer of a request."""
    buyer = parse_string(parameters, "buyer", default="")
    allowed = ["1 to 255 printable characters"]
    if not buyer:
        raise BadInput("buyer is missing: give the buyer's name", allowed=allowed)
    if len(buyer) > 255 or not buyer.isprintable():
        raise BadInput(f"bad buyer: {_make_short_repr(buyer)}", allowed=allowed)
    return buyer


def _parse_strategy_name(parameters: Mapping[str, Any]) -> str:
    """Return the name of the strategy: the buyer's choice in a demo, otherwise SHOP_LOCK.

    Raises Unavailable for a strategy that does not work with the database.
    """
    if settings.SHOP_DEMO:
        lock = parse_string(parameters, "lock", default="none")
        if lock not in STRATEGIES:
            raise BadInput(f"unknown lock {lock[:64]!r}", allowed=STRATEGIES)
        if not STRATEGIES[lock].works_with(connection.vendor):
            raise Unavailable(f"{lock} does not work with {read_database_software()}")
        return lock
    if parse_string(parameters, "lock", default=settings.SHOP_LOCK) != settings.SHOP_LOCK:
        raise BadInput(
            "the server chooses the lock: leave `lock` out, or send the server's",
            allowed=[settings.SHOP_LOCK],
        )
    return settings.SHOP_LOCK


def _parse_hold_ms(parameters: Mapping[str, Any]) -> int:
    """Return the milliseconds for which a demo pauses between the check and the decrement."""
    hold_ms = parse_integer(
        parameters, "hold_ms", default=0, minimum=0, maximum=settings.SHOP_LONGEST_HOLD_MS
    )
    if "hold_ms" in parameters and not settings.SHOP_DEMO:
        raise BadInput("hold_ms works in a demo only: start the shop with SHOP_DEMO=1")
    return hold_ms


# --- parameters ----------------------------------------------------------------------------------


def parse_parameters(request: HttpRequest, allowed: set[str]) -> dict[str, Any]:
    """Return the parameters of the query string and the body; the body takes precedence.

    Raises BadInput for an unknown or repeated name, and for a body of an unknown type. An unknown
    name is not ignored, because a buyer who writes `lok=redis` would buy without the lock. Raises
    TooLarge for a body that is too large, and LengthRequired for a chunked body.

    allowed  the names of all parameters that this kind of request may have
    """
    parameters: dict[str, Any] = {}
    try:
        parameters.update(_build_parameters(_list_pairs(request.GET)))
        if request.method != "GET":  # ignore the body of a GET, even with a Content-Type
            parameters.update(_parse_body(request, allowed))
    except RequestDataTooBig as error:
        _discard_body(request)
        raise make_too_large_error() from error
    except UNREADABLE_ERRORS as error:
        raise BadInput(f"the request cannot be read: {error}", allowed=sorted(allowed)) from error
    except UnreadablePostError as error:
        raise BadInput("the connection was closed before the end of the body") from error
    unknown_names = set(parameters) - allowed
    if unknown_names:
        names = ", ".join(sorted(name[:64] for name in unknown_names))
        raise BadInput(f"unknown parameter: {names}", allowed=sorted(allowed))
    return parameters


def make_too_large_error() -> TooLarge:
    """Return the refusal of a body that is too large, with the allowed size."""
    allowed_size = f"{settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes"
    return TooLarge("the body is too large", allowed=[allowed_size])


def _discard_body(request: HttpRequest) -> None:
    """Read a refused body, up to MAX_DISCARDED_BYTES.

    Otherwise the connection would be closed while the client sends, and the client would get a
    broken pipe instead of the answer.
    """
    for _ in range(0, MAX_DISCARDED_BYTES, DISCARD_CHUNK_BYTES):
        if not request.read(DISCARD_CHUNK_BYTES):
            return


def _parse_body(request: HttpRequest, allowed: set[str]) -> dict[str, Any]:
    """Return the parameters in a JSON or form body. Raises BadInput or LengthRequired."""
    if "Transfer-Encoding" in request.headers:
        raise LengthRequired  # Django reads no body that has no Content-Length
    body = request.body  # limited in size; request.POST would accept any size of multipart body
    if request.content_type == JSON_TYPE:
        parameters = json.loads(body, object_pairs_hook=_build_parameters)
        if not isinstance(parameters, dict):
            raise BadInput("the JSON body is not an object", allowed=sorted(allowed))
        return parameters
    if body and request.content_type not in FORM_TYPES:
        problem = f"a body of type {_make_short_repr(request.content_type)} cannot be read"
        raise BadInput(problem, allowed=[JSON_TYPE] + FORM_TYPES)
    # An uploaded file is refused later, because a parameter must be a string or a number.
    return _build_parameters(_list_pairs(request.POST)) | dict(request.FILES.items())


def _list_pairs(fields: QueryDict) -> list[tuple[str, Any]]:
    """Return a pair of name and text for each field. A repeated name has several pairs."""
    pairs: list[tuple[str, Any]] = []
    for name, texts in fields.lists():
        for text in texts:
            pairs.append((name, text))
    return pairs


def _build_parameters(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the parameters by name. Raises BadInput if a name is repeated."""
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise BadInput("a parameter is repeated", allowed=["each parameter once"])
    return parameters


def parse_string(parameters: Mapping[str, Any], name: str, *, default: str) -> str:
    """Return a parameter that must be a string."""
    text = parameters.get(name, default)
    if not isinstance(text, str):
        raise BadInput(
            f"{name} must be a string, not {_make_short_repr(text)}", allowed=["a string"]
        )
    return text


def parse_integer(
    parameters: Mapping[str, Any], name: str, *, default: int | None, minimum: int, maximum: int
) -> int:
    """Return a parameter that must be an integer in a range. It may come as a string of digits.

    If `default` is None, the parameter is required.
    """
    number = parameters.get(name, default)
    if isinstance(number, str) and re.fullmatch(r"-?[0-9]{1,19}", number):
        number = int(number)
    is_integer = isinstance(number, int) and not isinstance(number, bool)
    if not is_integer or not minimum <= number <= maximum:
        allowed = f"a whole number from {minimum} to {maximum}"
        raise BadInput(f"bad {name}: {_make_short_repr(number)}", allowed=[allowed])
    return int(number)


def _parse_optional_integer(
    parameters: Mapping[str, Any], name: str, *, minimum: int, maximum: int
) -> int | None:
    """Return a parameter that must be an integer, or None if it is missing."""
    if name not in parameters:
        return None
    return parse_integer(parameters, name, default=None, minimum=minimum, maximum=maximum)


def _make_short_repr(value: object) -> str:
    """Return the repr() of the value, cut to 64 characters, for an error message."""
    text = repr(value)
    if len(text) > 64:
        text = f"{text[:61]}..."
    return text
