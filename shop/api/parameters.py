"""The parameters of a request: each name known and given once, each value bounded."""

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

PRODUCT_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
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


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 64 else f"{text[:61]}..."
