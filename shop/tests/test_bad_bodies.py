"""Requests that cannot be read: 400 in JSON, at any size and depth, and nothing sold."""

from __future__ import annotations

import pytest
from django.test import Client

from shop.tests.test_bad_input import BUYER, PARAMETERS
from shop.tests.till import answer_of, books, committed, open_sale, rolled_back

pytestmark = rolled_back

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = 'multipart/form-data; boundary="b"'
A_FILE = (
    b'--b\r\nContent-Disposition: form-data; name="buyer"\r\n\r\nada\r\n'
    b'--b\r\nContent-Disposition: form-data; name="%s"; filename="f"\r\n\r\n%s\r\n--b--\r\n'
)
TOO_LARGE = ["16384 bytes"]
TYPES = [JSON, FORM, "multipart/form-data"]
#: body, content type, how the error begins, what is allowed (empty: Python's to say)
BAD_BODIES: dict[str, tuple[bytes, str, str, list[str]]] = {
    "empty form": (b"", FORM, "buyer is missing: say who buys", BUYER),
    "empty multipart": (b"", MULTIPART, "buyer is missing: say who buys", BUYER),
    "empty json": (b"", JSON, "the request cannot be read: Expecting value", PARAMETERS),
    "no json": (b"{buyer: ada}", JSON, "the request cannot be read: Expecting", PARAMETERS),
    "half json": (b'{"buyer": "ada"', JSON, "the request cannot be read: Expecting", PARAMETERS),
    "not utf-8": (b'{"buyer": "\xff"}', JSON, "the request cannot be read: 'utf-8'", PARAMETERS),
    "list": (b'["buyer", "ada"]', JSON, "the JSON body is not an object", PARAMETERS),
    "text": (b'"ada"', JSON, "the JSON body is not an object", PARAMETERS),
    "null": (b"null", JSON, "the JSON body is not an object", PARAMETERS),
    "number": (b"1", JSON, "the JSON body is not an object", PARAMETERS),
    "huge number": (b'{"hold_ms": %s}' % (b"9" * 5000), JSON, "the request cannot", PARAMETERS),
    "deep json": (b'{"buyer": %s%s}' % (b"[" * 8000, b"]" * 8000), JSON, "", []),
    "10 MB json": (b'{"buyer": "%s"}' % (b"a" * 10_000_000), JSON, "the body is", TOO_LARGE),
    "10 MB form": (b"buyer=" + b"a" * 10_000_000, FORM, "the body is too large", TOO_LARGE),
    "10 MB file": (A_FILE % (b"f", b"a" * 10_000_000), MULTIPART, "the body is", TOO_LARGE),
    "file": (A_FILE % (b"f", b"a"), MULTIPART, "unknown parameter: f", PARAMETERS),
    "file as buyer": (A_FILE % (b"buyer", b"a"), MULTIPART, "buyer is not a text", ["a text"]),
    "no boundary": (b"x", "multipart/form-data", "the request cannot be read", PARAMETERS),
    "form in latin-1": (b"buyer=ada", f"{FORM}; charset=latin-1", "the request", PARAMETERS),
    "2000 fields": (b"&".join([b"f=1"] * 2000), FORM, "the request cannot", PARAMETERS),
    "another type": (b"buyer=ada", "text/plain", "a body of type 'text/plain'", TYPES),
    "no type": (b"buyer=ada", "", "a body of type ''", TYPES),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_body_that_cannot_be_read_is_400_in_json(name: str) -> None:
    body, content_type, error, allowed = BAD_BODIES[name]
    open_sale(1)
    answer = answer_of(Client().generic("POST", "/buy", body, CONTENT_TYPE=content_type))
    assert answer.status == 400
    assert set(answer.body) == {"outcome", "error", "allowed"}
    assert answer.body["outcome"] == "error"
    assert answer.body["error"].startswith(error)
    assert "Traceback" not in answer.body["error"]
    assert not allowed or answer.body["allowed"] == allowed
    assert books() == (0, 1)


@committed  # it takes longer than a transaction may idle
def test_json_of_any_depth_is_answered_with_400() -> None:
    """Somewhere there is a depth that can be read but not be shown."""
    open_sale(1)
    for depth in [*range(880, 980), 2000, 8000]:
        body = '{"buyer": ' + "[" * depth + "]" * depth + "}"
        answer = answer_of(Client().post("/buy", body, content_type=JSON))
        assert answer.status == 400, depth
    assert books() == (0, 1)


def test_a_query_of_2000_fields_is_400_in_json() -> None:
    open_sale(1)
    query = "&".join(f"f{number}=1" for number in range(2000))
    answer = answer_of(Client().post(f"/buy?{query}", {"buyer": "ada"}))
    assert answer.status == 400
    assert answer.body["error"].startswith("the request cannot be read: The number of GET/POST")
    assert books() == (0, 1)


def test_a_page_that_does_not_exist_is_404_in_json() -> None:
    answer = answer_of(Client().get("/sell"))
    assert answer.status == 404
    assert answer.body == {
        "outcome": "error",
        "error": "no such page",
        "allowed": ["POST /buy", "GET /strategies"],
    }


def test_an_error_that_nobody_foresaw_is_500_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(attempt: object) -> None:
        raise ZeroDivisionError("a secret")

    open_sale(1)
    monkeypatch.setattr("shop.views.check_out", fail)
    client = Client(raise_request_exception=False)
    answer = answer_of(client.post("/buy", {"buyer": "ada"}))
    assert answer.status == 500
    assert answer.body == {"outcome": "error", "error": "the shop failed; its log says why"}
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


def test_a_body_of_another_type_is_refused_though_the_query_is_complete() -> None:
    """Ignored, the sale would run under `none`, and its body asked for `redis`."""
    open_sale(1)
    path = "/buy?product=apple&buyer=ada"
    answer = answer_of(Client().post(path, "lock=redis", content_type="text/plain"))
    assert answer.status == 400
    assert answer.body["error"].startswith("a body of type 'text/plain' is not read")
    assert books() == (0, 1)


@committed
def test_a_query_alone_buys_whatever_type_it_states_for_a_body_it_has_not() -> None:
    open_sale(1)
    answer = answer_of(Client().post("/buy?buyer=ada&lock=redis", "", content_type="text/plain"))
    assert answer.status == 201


def test_a_body_in_chunks_is_411_where_the_server_hands_it_on_as_it_came() -> None:
    open_sale(1)
    answer = answer_of(Client().post("/buy?buyer=ada", headers={"Transfer-Encoding": "chunked"}))
    assert answer.status == 411
    assert books() == (0, 1)
