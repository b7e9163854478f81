"""Every answer is JSON, and the log has a line only where somebody must look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from servers.valkey import Valkey
from shop.ops import health
from shop.tests.node import BEARER, Node, node_at
from shop.tests.outage import Outage
from shop.tests.till import answer_of, eventually

#: Paths with the methods that they have; every other one is 405.
METHODS = {
    "/buy": "POST",
    "/restock": "POST",
    "/strategies": "GET",
    "/strategies/redis/code": "GET",
    "/sales/latest": "GET",
    "/sales/1": "GET",
    "/sales/1/orders": "GET",
    "/sales/1/curve": "GET",
    "/state": "GET",
    "/history": "GET",
    "/healthz": "GET",
    "/readyz": "GET",
    "/": "GET",
}


@pytest.fixture(scope="module")
def production(folder: Path, valkey: Valkey) -> Iterator[Node]:
    with node_at(folder / "answers.log", valkey=valkey, SHOP_DEMO="0") as node:
        yield node


@pytest.fixture
def outage(valkey: Valkey) -> Iterator[Outage]:
    outage = Outage(valkey)
    yield outage
    outage.end()


def logged(node: Node, since: int) -> list[str]:
    """What the node logged since, without its access lines."""
    lines = node.log.read_text()[since:].splitlines()
    return [line for line in lines if " shop.access " not in line]


@pytest.mark.parametrize("path", METHODS)
def test_another_method_is_405_and_not_a_form_without_its_token(path: str) -> None:
    """A client without cookies was asked for a CSRF token, in HTML, and with 403."""
    allowed = ["GET", "HEAD"] if METHODS[path] == "GET" else [METHODS[path]]
    for method in {"PUT", "PATCH", "DELETE", "OPTIONS", "GET", "POST"} - {METHODS[path]}:
        answer = answer_of(Client(enforce_csrf_checks=True).generic(method, path))
        assert answer.status == 405
        assert answer.headers["Allow"] == ", ".join(allowed)
        assert answer.body["allowed"] == allowed


@pytest.mark.parametrize("path", ["/rush", "/steps", "/steps/step", "/admin/login/"])
def test_a_form_without_its_token_is_403_in_json(path: str) -> None:
    answer = answer_of(Client(enforce_csrf_checks=True).post(path, {}))
    assert answer.status == 403
    assert answer.body == {
        "outcome": "error",
        "error": "the form came without its CSRF token: load the page again, and send its cookie",
    }


# --- what the log says of it --------------------------------------------------------------------


def test_an_expected_refusal_is_not_logged_as_a_warning(production: Node) -> None:
    """200 sold-out buyers were 200 warnings, and hid the one that mattered."""
    production.restock(0)
    before = len(production.log.read_text())
    for status, path, body in [
        (409, "/buy", b'{"buyer": "ada"}'),
        (400, "/buy", b"{}"),
        (404, "/buy", b'{"buyer": "ada", "product": "pear"}'),
        (404, "/nowhere", b""),
        (405, "/healthz", b""),
        (403, "/restock", b""),
    ]:
        assert production.ask("POST", path, body)[0] == status
    assert logged(production, before) == []


# --- /readyz ------------------------------------------------------------------------------------


def test_versions_are_shown_with_the_token_and_not_to_a_stranger(production: Node) -> None:
    """Nor what a server that fails said: it names hosts and users."""
    _, shown = production.get("/readyz")
    assert shown == {
        "status": "ready",
        "parts": [
            {"name": name, "ok": True}
            for name in (
                *("PostgreSQL", "migrations", "Redis (locks)", "Redis (cache)"),
                "PostgreSQL timeouts",
            )
        ],
    }
    _, answer = production.ask("GET", "/readyz", headers=BEARER)
    assert answer["parts"][0]["detail"].startswith("version 18")


def test_an_outage_is_a_line_and_a_node_says_within_moments_that_it_is_not_ready(
    production: Node, outage: Outage
) -> None:
    production.restock(1)
    before = len(production.log.read_text())
    outage.begin()
    assert production.ask("POST", "/buy", b'{"buyer": "ada"}')[0] == 503
    lines = logged(production, before)
    assert [line for line in lines if re.search(r"ERROR django.request .*Unavailable: /buy", line)]
    assert not [line for line in lines if "Traceback" in line]
    eventually(lambda: production.get("/readyz")[0] == 503, what="it is not ready")
    _, shown = production.get("/readyz")
    assert [part["ok"] for part in shown["parts"]] == [True, True, False, False, True]
    outage.end()
    eventually(lambda: production.get("/readyz")[0] == 200, what="it is ready again")


def test_the_servers_are_asked_once_a_second_however_many_want_to_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look cost 8 ms, most of it for the migrations, and anybody may ask."""
    asked: list[float] = []
    now = 100.0

    def stack() -> list[health.Part]:
        asked.append(now)
        return [health.Part("PostgreSQL", True, "")]

    monkeypatch.setattr(health, "stack", stack)
    monkeypatch.setattr("shop.ops.health.time.monotonic", lambda: now)
    for _ in range(5):
        assert answer_of(Client().get("/readyz")).status == 200
    now = 100.9
    health.recent()
    assert asked == [100.0]
    now = 101.0
    health.recent()
    assert asked == [100.0, 101.0]
