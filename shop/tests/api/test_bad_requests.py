"""Requests that the shop cannot read or fulfill. The refusal lists the allowed values."""

from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from shop.strategies import STRATEGIES
from shop.tests.purchases import (
    assert_refused,
    buy,
    committed,
    count_orders_and_stock,
    get_json,
    open_sale,
    parse_reply,
    post_buy,
    rolled_back,
)

pytestmark = rolled_back

#: The parameters of POST /buy, which a refusal lists as allowed.
PARAMETERS = ["buyer", "hold_ms", "lock", "product", "sale"]
ALLOWED_BUYERS = ["1 to 255 printable characters"]
#: Bad values of each parameter, grouped by the expected refusal. The outer key is the parameter
#: and the `allowed` values of the refusal. The inner key is the `error` of the refusal, in which
#: the bad value replaces `{!r}`. The inner value is the list of bad values.
BAD_PARAMETERS: dict[tuple[str, tuple[str, ...]], dict[str, list[Any]]] = {
    ("lock", tuple(STRATEGIES)): {"unknown lock {!r}": ["redlock9", "", "re\0dis"]},
    ("lock", ("a string",)): {"lock must be a string, not {!r}": [["redis"]]},
    ("product", ("1 to 64 letters, digits, - and _",)): {"bad product name: {!r}": ["", "apple\n"]},
    ("product", ("a string",)): {"product must be a string, not {!r}": [{"name": "apple"}]},
    ("buyer", tuple(ALLOWED_BUYERS)): {
        "buyer is missing: give the buyer's name": [""],
        "bad buyer: {!r}": ["a\0b", "\ud800"],
        f"bad buyer: '{'b' * 60}...": ["b" * 256],
    },
    ("buyer", ("a string",)): {"buyer must be a string, not {!r}": [True]},
    ("hold_ms", ("a whole number from 0 to 5000",)): {
        "bad hold_ms: {!r}": [-1, 5001, "\u0661", 1.5, float("nan"), True, [1]],
        f"bad hold_ms: '{'9' * 60}...": ["9" * 400],
    },
    ("sale", (f"a whole number from 1 to {2**63 - 1}",)): {"bad sale: {!r}": [0, "next", 2**63]},
    ("lok", tuple(PARAMETERS)): {"unknown parameter: lok": ["redis"]},
    ("\ud800", tuple(PARAMETERS)): {"unknown parameter: \ud800": [1]},
}


@pytest.mark.parametrize(
    ("name", "allowed"), BAD_PARAMETERS, ids=[name for name, _ in BAD_PARAMETERS]
)
def test_bad_parameter_is_refused_with_the_allowed_values(
    name: str, allowed: tuple[str, ...]
) -> None:
    """A purchase with a bad value of one parameter gets 400, and nothing is sold."""
    open_sale(1)
    for error_format, values in BAD_PARAMETERS[name, allowed].items():
        for value in values:
            answer = post_buy({"buyer": "ada", "lock": "redis", name: value})
            assert_refused(answer, 400, error_format.format(value), *allowed)
    assert count_orders_and_stock() == (0, 1)


def test_bad_idempotency_key_is_400() -> None:
    """An Idempotency-Key that is empty, too long, or not printable ASCII is refused."""
    open_sale(1)
    allowed = "1 to 255 printable ASCII characters"
    for key in ("", "two words", "k" * 256, "näh", "a\0b", "a\tb"):
        assert_refused(buy(key=key), 400, "bad Idempotency-Key", allowed)
    assert count_orders_and_stock() == (0, 1)


def test_hold_ms_is_refused_outside_a_demo(settings: Settings) -> None:
    """Only the buyers of a demo may choose how long they hold the lock (`hold_ms`)."""
    open_sale(1)
    settings.SHOP_DEMO = False
    error = "hold_ms works in a demo only: start the shop with SHOP_DEMO=1"
    assert_refused(buy(hold_ms=0), 400, error)
    assert count_orders_and_stock() == (0, 1)


# --- bodies -------------------------------------------------------------------------------------

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = 'multipart/form-data; boundary="b"'
#: A multipart form with the buyer `ada` and a file. The `%s` are the file's field and its content.
FILE_UPLOAD = (
    b'--b\r\nContent-Disposition: form-data; name="buyer"\r\n\r\nada\r\n'
    b'--b\r\nContent-Disposition: form-data; name="%s"; filename="f"\r\n\r\n%s\r\n--b--\r\n'
)
ALLOWED_TYPES = [JSON, FORM, "multipart/form-data"]
#: Name of a case -> the body, its content type, the beginning of the expected error, and the
#: expected `allowed` values.
BAD_BODIES: dict[str, tuple[bytes, str, str, list[str]]] = {
    "empty form": (b"", FORM, "buyer is missing: give the buyer's name", ALLOWED_BUYERS),
    "empty json": (b"", JSON, "the request cannot be read: Expecting value", PARAMETERS),
    "half json": (b'{"buyer": "ada"', JSON, "the request cannot be read: Expecting", PARAMETERS),
    "not utf-8": (b'{"buyer": "\xff"}', JSON, "the request cannot be read: 'utf-8'", PARAMETERS),
    "list": (b'["buyer", "ada"]', JSON, "the JSON body is not an object", PARAMETERS),
    "huge number": (b'{"hold_ms": %s}' % (b"9" * 5000), JSON, "the request cannot", PARAMETERS),
    "file as buyer": (
        FILE_UPLOAD % (b"buyer", b"a"),
        MULTIPART,
        "buyer must be a string",
        ["a string"],
    ),
    "form in latin-1": (b"buyer=ada", f"{FORM}; charset=latin-1", "the request", PARAMETERS),
    "another type": (b"buyer=ada", "text/plain", "a body of type 'text/plain'", ALLOWED_TYPES),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_unreadable_body_is_400_in_json(name: str) -> None:
    """The refusal of a body in BAD_BODIES lists the allowed values, and nothing is sold."""
    body, content_type, error, allowed = BAD_BODIES[name]
    open_sale(1)
    answer = parse_reply(Client().generic("POST", "/buy", body, CONTENT_TYPE=content_type))
    assert answer.status == 400
    assert set(answer.body) == {"outcome", "error", "allowed"}
    assert answer.body["outcome"] == "error"
    assert answer.body["error"].startswith(error)
    assert answer.body["allowed"] == allowed
    assert count_orders_and_stock() == (0, 1)


def test_body_of_another_type_is_not_ignored() -> None:
    """A body that the shop cannot read is refused, even if the query alone is a valid purchase.

    The query has no `lock`, so its default `none` applies. If the shop ignored the body, it would
    sell without the lock `redis`, which the body requests.
    """
    open_sale(1)
    path = "/buy?product=apple&buyer=ada"
    answer = parse_reply(Client().post(path, b"lock=redis", content_type="text/plain"))
    error = "a body of type 'text/plain' cannot be read"
    assert_refused(answer, 400, error, *ALLOWED_TYPES)
    assert count_orders_and_stock() == (0, 1)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"buyer": "%s"}' % (b"a" * 10_000_000), JSON),
        (FILE_UPLOAD % (b"f", b"a" * 10_000_000), MULTIPART),
    ],
    ids=["json", "file"],
)
def test_large_body_is_413(body: bytes, content_type: str) -> None:
    """A body of 10 MB is refused; the limit is 16384 bytes."""
    open_sale(1)
    answer = parse_reply(Client().post("/buy", body, content_type=content_type))
    assert_refused(answer, 413, "the body is too large", "16384 bytes")
    assert count_orders_and_stock() == (0, 1)


@committed  # in one transaction, the test would exceed PostgreSQL's limit for idle transactions
def test_deeply_nested_json_is_400() -> None:
    """Deeply nested JSON is refused, even where only repr() fails.

    Some of these bodies can be parsed, but are too deep for repr(), which formats the message.
    """
    open_sale(1)
    for depth in [*range(900, 980, 4), 8000]:
        body = '{"buyer": ' + "[" * depth + "]" * depth + "}"
        answer = parse_reply(Client().post("/buy", body, content_type=JSON))
        assert answer.status == 400, depth
    assert count_orders_and_stock() == (0, 1)


# --- paths and methods ----------------------------------------------------------------------------

#: The only method that each path allows (a path that allows GET also allows HEAD).
METHOD_BY_PATH = {
    "/buy": "POST",
    "/restock": "POST",
    "/": "GET",
    "/state": "GET",
    "/history": "GET",
    "/strategies": "GET",
    "/strategies/redis/code": "GET",
    "/healthz": "GET",
    "/readyz": "GET",
    "/sales/latest": "GET",
    "/sales/1": "GET",
    "/sales/1/orders": "GET",
    "/sales/1/curve": "GET",
}


@pytest.mark.parametrize("path", METHOD_BY_PATH)
def test_wrong_method_is_405(path: str) -> None:
    """A request with a wrong method gets 405, although without a CSRF token Django answers 403."""
    right_method = METHOD_BY_PATH[path]
    allowed = ["GET", "HEAD"] if right_method == "GET" else [right_method]
    for method in {"PUT", "PATCH", "DELETE", "OPTIONS", "GET", "POST"} - {right_method}:
        answer = parse_reply(Client(enforce_csrf_checks=True).generic(method, path))
        assert answer.status == 405
        assert answer.headers["Allow"] == ", ".join(allowed)
        assert answer.body["allowed"] == allowed


def test_unknown_page_is_404_in_json() -> None:
    assert_refused(get_json("/sell"), 404, "no such page", "POST /buy", "GET /strategies")


def test_unexpected_error_is_500_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to an unexpected exception does not contain the exception's message."""

    def fail(attempt: object) -> None:
        raise ZeroDivisionError("a secret")

    open_sale(1)
    monkeypatch.setattr("shop.views.check_out", fail)
    client = Client(raise_request_exception=False)
    answer = parse_reply(client.post("/buy", {"buyer": "ada"}))
    assert_refused(answer, 500, "the shop failed; its log says why")
    assert count_orders_and_stock() == (0, 1)


@pytest.mark.parametrize(
    ("path", "body", "content_type"),
    [
        ("/buy?lock=redis&lock=none&buyer=ada", "", FORM),
        ("/buy", "lock=redis&lock=none&buyer=ada", FORM),
        ("/buy", '{"buyer": "ada", "lock": "redis", "lock": "none"}', JSON),
    ],
    ids=["query", "form", "json"],
)
def test_repeated_parameter_is_refused(path: str, body: str, content_type: str) -> None:
    """A repeated parameter is refused.

    If the shop used the last value, a client that asked for `redis` could buy without a lock.
    """
    open_sale(1)
    answer = parse_reply(Client().post(path, body, content_type=content_type))
    assert answer.status == 400
    assert answer.body["error"] == "a parameter is repeated"
    assert count_orders_and_stock() == (0, 1)
