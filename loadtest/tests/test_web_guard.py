"""Who may ask Locust's web UI, header by header. Played in a browser in
test_attacks_from_the_web.py."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment
from wsgiref.util import setup_testing_defaults

import pytest

from loadtest.rush.web_guard import HEADERS, Guard

HOST = "127.0.0.1:8089"
OWN = {"HTTP_ORIGIN": f"http://{HOST}"}
TOKEN = {"HTTP_AUTHORIZATION": "Bearer secret"}
LINK = {"HTTP_SEC_FETCH_MODE": "navigate", "HTTP_SEC_FETCH_DEST": "document"}


def locust(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """As flask_cors leaves it."""
    cors = ("Access-Control-Allow-Origin", str(environ.get("HTTP_ORIGIN", "*")))
    start_response("200 OK", [("Content-Type", "text/plain"), cors])
    return [b"done"]


def ask(
    guard: Guard, method: str = "GET", host: str = HOST, **headers: str
) -> tuple[int, dict[str, str], str]:
    environ: WSGIEnvironment = {"REQUEST_METHOD": method, "HTTP_HOST": host, **headers}
    setup_testing_defaults(environ)
    began: list[Any] = []
    body = b"".join(guard(environ, lambda *given: began.extend(given)))  # type: ignore[arg-type]
    return int(began[0].split()[0]), dict(began[1]), body.decode()


def guard(*hosts: str, token: str = "secret") -> Guard:
    return Guard(locust, hosts=hosts, token=token)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8089", "localhost:8089", "LOCALHOST", "[::1]:8089", "127.0.0.1:9999"]
)
def test_this_machine_is_allowed_by_any_of_its_names(host: str) -> None:
    assert ask(guard(), host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.test:8089", "127.0.0.1.evil.test", "evil.test#127.0.0.1", "evil@127.0.0.1"),
        *("127.0.0.1:8089@evil.test", "0.0.0.0:8089", "", "localhost.evil.test:8089"),
    ],
)
def test_every_other_host_is_refused_and_the_option_is_named(host: str) -> None:
    status, _, body = ask(guard(), host=host)
    assert (status, "--web-allowed-hosts" in body) == (403, True)


def test_a_named_host_is_allowed_and_no_other() -> None:
    named = guard("locust-ui", "demo.example")
    assert ask(named, host="locust-ui:8089")[0] == 200
    assert ask(named, host="demo.example")[0] == 200
    assert ask(named, host="evil.test")[0] == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.test", "http://127.0.0.1:8000", "http://127.0.0.1", "null", "http://["]
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_page_of_another_origin_is_refused_whatever_it_asks(origin: str, method: str) -> None:
    headers = {"HTTP_ORIGIN": origin, **TOKEN}
    assert ask(guard(), method, **headers)[0] == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_that_a_browser_sends_for_another_site_is_refused(site: str, method: str) -> None:
    """An <img> sends no Origin. same-site is another port of this machine."""
    assert ask(guard(), method, HTTP_SEC_FETCH_SITE=site)[0] == 403


@pytest.mark.parametrize(
    ("method", "dest", "status"),
    [("GET", "document", 200), ("GET", "iframe", 403), ("POST", "document", 403)],
)
def test_a_link_from_another_site_opens_locust_and_a_frame_or_a_form_does_not(
    method: str, dest: str, status: int
) -> None:
    headers = {**LINK, "HTTP_SEC_FETCH_DEST": dest, "HTTP_SEC_FETCH_SITE": "cross-site"}
    assert ask(guard(), method, **headers)[0] == status


def test_its_own_page_may_do_everything() -> None:
    assert ask(guard(), "POST", **OWN)[0] == 200
    assert ask(guard(), "POST", HTTP_SEC_FETCH_SITE="same-origin")[0] == 200


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [("GET", {}, 200), ("POST", TOKEN, 200), ("POST", {}, 403), ("DELETE", {}, 403)],
)
def test_a_program_reads_without_the_token_and_changes_nothing_without_it(
    method: str, headers: dict[str, str], status: int
) -> None:
    assert ask(guard(), method, **headers)[0] == status


def test_without_a_token_a_program_is_taken_as_by_stock_locust() -> None:
    assert ask(guard(token=""), "POST")[0] == 200


def test_no_token_is_the_right_one_where_there_is_none() -> None:
    assert not guard(token="").has_token({"HTTP_AUTHORIZATION": "Bearer "})
    assert not guard().has_token({"HTTP_AUTHORIZATION": "Bearer secret "})
    assert not guard().has_token({"HTTP_AUTHORIZATION": "Bearer \xe9"})
    assert guard().has_token(TOKEN)


def test_no_answer_says_that_other_pages_may_read_it() -> None:
    for answer in (ask(guard(), **OWN), ask(guard(), host="evil.test", **OWN)):
        headers = answer[1]
        assert not [name for name in headers if name.startswith("Access-Control")]
        assert dict(HEADERS).items() <= headers.items()


def test_a_refusal_is_a_sentence_in_json() -> None:
    _, headers, body = ask(guard(), host="<b>evil</b>" * 20)
    assert headers["Content-Type"] == "application/json"
    answer = json.loads(body)
    assert answer["success"] is False
    assert len(answer["message"]) < 200
