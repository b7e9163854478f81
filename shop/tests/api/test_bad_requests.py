"""Requests that the shop cannot read or fulfil: refused by name, in JSON, with what is allowed, at
any size and depth, and nothing is sold."""

from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from shop.strategies import STRATEGIES
from shop.tests.till import (
    answer_of,
    ask,
    assert_refused,
    books,
    buy,
    committed,
    get,
    open_sale,
    rolled_back,
)

pytestmark = rolled_back

PARAMETERS = ["buyer", "hold_ms", "lock", "product", "sale"]
BUYER = ["1 to 255 printable characters"]
#: Parameter and what is allowed -> error -> values, each sent as JSON with what else a wish needs.
BAD_WISHES: dict[tuple[str, tuple[str, ...]], dict[str, list[Any]]] = {
    ("lock", tuple(STRATEGIES)): {"unknown lock {!r}": ["redlock9", "", "re\0dis"]},
    ("lock", ("a text",)): {"lock is not a text: {!r}": [["redis"]]},
    ("product", ("1 to 64 letters, digits, - and _",)): {"bad product name": ["", "apple\n"]},
    ("product", ("a text",)): {"product is not a text: {!r}": [{"name": "apple"}]},
    ("buyer", tuple(BUYER)): {
        "buyer is missing: say who buys": [""],
        "bad buyer": ["b" * 256, "a\0b", "\ud800"],
    },
    ("buyer", ("a text",)): {"buyer is not a text: {!r}": [True]},
    ("hold_ms", ("a whole number from 0 to 5000",)): {
        "bad hold_ms: {!r}": [-1, 5001, "\u0661", 1.5, float("nan"), True, [1]],
        f"bad hold_ms: '{'9' * 60}...": ["9" * 400],
    },
    ("sale", (f"a whole number from 1 to {2**63 - 1}",)): {"bad sale: {!r}": [0, "next", 2**63]},
    ("lok", tuple(PARAMETERS)): {"unknown parameter: lok": ["redis"]},
    ("\ud800", tuple(PARAMETERS)): {"unknown parameter: \ud800": [1]},
}


@pytest.mark.parametrize(("name", "allowed"), BAD_WISHES, ids=[each[0] for each in BAD_WISHES])
def test_a_wish_that_cannot_be_is_refused_by_name_with_what_is_allowed(
    name: str, allowed: tuple[str, ...]
) -> None:
    open_sale(1)
    for error, values in BAD_WISHES[name, allowed].items():
        for value in values:
            answer = ask({"buyer": "ada", "lock": "redis", name: value})
            assert_refused(answer, 400, error.format(value), *allowed)
    assert books() == (0, 1)


def test_a_bad_idempotency_key_is_400() -> None:
    open_sale(1)
    wanted = "1 to 255 printable ASCII characters"
    for key in ("", "two words", "k" * 256, "näh", "a\0b", "a\tb"):
        assert_refused(buy(key=key), 400, "bad Idempotency-Key", wanted)
    assert books() == (0, 1)


def test_hold_ms_outside_a_demo_is_refused_with_what_to_do(settings: Settings) -> None:
    open_sale(1)
    settings.SHOP_DEMO = False
    said = "hold_ms works in a demo only: start the shop with SHOP_DEMO=1"
    assert_refused(buy(hold_ms=0), 400, said)
    assert books() == (0, 1)


# --- bodies -------------------------------------------------------------------------------------

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = 'multipart/form-data; boundary="b"'
A_FILE = (
    b'--b\r\nContent-Disposition: form-data; name="buyer"\r\n\r\nada\r\n'
    b'--b\r\nContent-Disposition: form-data; name="%s"; filename="f"\r\n\r\n%s\r\n--b--\r\n'
)
TOO_LARGE = ["16384 bytes"]
TYPES = [JSON, FORM, "multipart/form-data"]
#: body, content type, how the error begins, what is allowed
BAD_BODIES: dict[str, tuple[bytes, str, str, list[str]]] = {
    "empty form": (b"", FORM, "buyer is missing: say who buys", BUYER),
    "empty json": (b"", JSON, "the request cannot be read: Expecting value", PARAMETERS),
    "half json": (b'{"buyer": "ada"', JSON, "the request cannot be read: Expecting", PARAMETERS),
    "not utf-8": (b'{"buyer": "\xff"}', JSON, "the request cannot be read: 'utf-8'", PARAMETERS),
    "list": (b'["buyer", "ada"]', JSON, "the JSON body is not an object", PARAMETERS),
    "huge number": (b'{"hold_ms": %s}' % (b"9" * 5000), JSON, "the request cannot", PARAMETERS),
    "10 MB json": (b'{"buyer": "%s"}' % (b"a" * 10_000_000), JSON, "the body is", TOO_LARGE),
    "10 MB file": (A_FILE % (b"f", b"a" * 10_000_000), MULTIPART, "the body is", TOO_LARGE),
    "file as buyer": (A_FILE % (b"buyer", b"a"), MULTIPART, "buyer is not a text", ["a text"]),
    "form in latin-1": (b"buyer=ada", f"{FORM}; charset=latin-1", "the request", PARAMETERS),
    "another type": (b"lock=redis", "text/plain", "a body of type 'text/plain'", TYPES),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_body_that_cannot_be_read_is_400_in_json(name: str) -> None:
    """Although the query of `another type` is complete: ignored, its body would ask for `redis`,
    and the sale would run under `none`."""
    body, content_type, error, allowed = BAD_BODIES[name]
    open_sale(1)
    path = "/buy?product=apple&buyer=ada" if name == "another type" else "/buy"
    answer = answer_of(Client().generic("POST", path, body, CONTENT_TYPE=content_type))
    assert answer.status == 400
    assert set(answer.body) == {"outcome", "error", "allowed"}
    assert answer.body["outcome"] == "error"
    assert answer.body["error"].startswith(error)
    assert answer.body["allowed"] == allowed
    assert books() == (0, 1)


@committed  # it takes longer than a transaction may idle
def test_json_of_any_depth_is_answered_with_400() -> None:
    """Somewhere there is a depth that can be read but not be shown."""
    open_sale(1)
    for depth in [*range(900, 980, 4), 8000]:
        body = '{"buyer": ' + "[" * depth + "]" * depth + "}"
        answer = answer_of(Client().post("/buy", body, content_type=JSON))
        assert answer.status == 400, depth
    assert books() == (0, 1)


# --- paths and methods ----------------------------------------------------------------------------

#: Paths with the methods that they have; every other one is 405.
METHODS = dict.fromkeys(("/buy", "/restock"), "POST") | dict.fromkeys(
    (
        *("/", "/state", "/history", "/strategies", "/strategies/redis/code", "/healthz"),
        *("/readyz", "/sales/latest", "/sales/1", "/sales/1/orders", "/sales/1/curve"),
    ),
    "GET",
)


@pytest.mark.parametrize("path", METHODS)
def test_another_method_is_405_and_not_a_form_without_its_token(path: str) -> None:
    """A client without cookies was asked for a CSRF token, in HTML, and with 403."""
    allowed = ["GET", "HEAD"] if METHODS[path] == "GET" else [METHODS[path]]
    for method in {"PUT", "PATCH", "DELETE", "OPTIONS", "GET", "POST"} - {METHODS[path]}:
        answer = answer_of(Client(enforce_csrf_checks=True).generic(method, path))
        assert answer.status == 405
        assert answer.headers["Allow"] == ", ".join(allowed)
        assert answer.body["allowed"] == allowed


def test_a_page_that_does_not_exist_is_404_in_json() -> None:
    assert_refused(get("/sell"), 404, "no such page", "POST /buy", "GET /strategies")


def test_an_error_that_nobody_foresaw_is_500_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(attempt: object) -> None:
        raise ZeroDivisionError("a secret")

    open_sale(1)
    monkeypatch.setattr("shop.views.check_out", fail)
    client = Client(raise_request_exception=False)
    answer = answer_of(client.post("/buy", {"buyer": "ada"}))
    assert_refused(answer, 500, "the shop failed; its log says why")
    assert books() == (0, 1)


@pytest.mark.parametrize(
    ("path", "body", "content_type"),
    [
        ("/buy?lock=redis&lock=none&buyer=ada", "", FORM),
        ("/buy", "lock=redis&lock=none&buyer=ada", FORM),
        ("/buy", '{"buyer": "ada", "lock": "redis", "lock": "none"}', JSON),
    ],
)
def test_a_parameter_that_is_given_twice_is_refused(
    path: str, body: str, content_type: str
) -> None:
    """The last one would win, and a sale asked for under a lock would run without one."""
    open_sale(1)
    answer = answer_of(Client().post(path, body, content_type=content_type))
    assert answer.status == 400
    assert answer.body["error"] == "a parameter is given twice"
    assert books() == (0, 1)
