"""The same requests to a node of threads and to one of an event loop have the same answers."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from locks import RedisLock
from servers.valkey import Valkey
from shop.tests.node import BEARER, Node, node_at
from shop.tests.outage import Outage

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
#: What each server says of itself, and what is new in each answer.
OF_THE_SERVER = {"date", "expires", "server", "via", "connection", "content-length"}
#: What is another one in each sale.
NEW_EACH_TIME = {"waited_ms", "held_ms", "fence", "parts", "time"}


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str = "POST"
    path: str = "/buy"
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    body: Any = b""
    chunked: bool = False


def buys(*, key: str = "", headers: Mapping[str, str] = JSON, **wanted: Any) -> Asked:
    given = {"buyer": "ada", **wanted}
    keyed = {**headers, **({"Idempotency-Key": key} if key else {})}
    return Asked(headers=keyed, body=json.dumps(given).encode())


#: In this order: the later ones meet what the earlier ones did.
CASES: dict[str, Sequence[Asked]] = {
    "sold under each kind of lock": [
        buys(lock=lock, buyer=lock)
        for lock in ("redis", "none", "row-lock", "token", "fence-at-write", "counter")
    ],
    "sold once, replayed, and another request with that key": [
        buys(lock="redis", key="k1"),
        buys(lock="redis", key="k1"),
        buys(lock="redis", key="k1", buyer="bob"),
        buys(lock="none", key="k2"),
        buys(lock="none", key="k2"),
    ],
    "a form, a query, both": [
        Asked(headers=FORM, body=b"buyer=ada&lock=redis"),
        Asked(path="/buy?buyer=ada&lock=redis", headers={}),
        Asked(path="/buy?buyer=ada", body=b'{"lock": "redis"}'),
    ],
    "bad input": [
        buys(lock="nonsense"),
        buys(lok="redis"),
        buys(buyer=""),
        buys(lock="redis", hold_ms=-1),
        buys(lock="redis", key="k" * 256),
        buys(lock="redis", product="no such product"),
        buys(lock="redis", product="pear"),
        Asked(body=b'{"buyer": "ada"'),
        Asked(body=b'["buyer"]'),
        Asked(body=b'{"buyer": "a", "buyer": "b"}'),
        Asked(path="/buy?lock=redis&lock=none&buyer=ada"),
        Asked(headers={"Content-Type": "text/plain"}, body=b"buyer=ada"),
    ],
    "bodies that are too large": [
        buys(buyer="a" * 20_000),
        buys(buyer="a" * 200_000),
        Asked(body=b'{"buyer": "%s"}' % (b"a" * 10_000_000)),
        Asked(body=b"a" * (16 * 1024 * 1024 + 1)),
    ],
    "a body in chunks": [Asked(body=b'{"buyer": "ada"}', chunked=True)],
    "a sale that is over": [buys(lock="redis", sale=1), buys(lock="none", sale=1)],
    "pages of other sites, and foreign names": [
        buys(headers={**JSON, "Origin": "http://evil.example"}),
        buys(headers={**JSON, "Sec-Fetch-Site": "cross-site"}),
        buys(headers={**JSON, "Host": "evil.example"}),
    ],
    "request ids": [
        buys(lock="redis", headers={**JSON, "X-Request-ID": "mine"}),
        buys(lock="nonsense", headers={**JSON, "X-Request-ID": "mine"}),
        Asked("GET", "/healthz", {"X-Request-ID": "mine"}),
    ],
    "methods and paths": [
        Asked("GET"),
        Asked("HEAD"),
        Asked("PUT"),
        Asked("POST", "/buy/"),
        Asked("GET", "/nowhere"),
        Asked("POST", "/nowhere"),
        Asked("POST", "/restock", JSON, b"{}"),
        Asked("GET", "/metrics"),
    ],
    "everything else": [
        Asked("GET", path, BEARER)
        for path in (
            *("/healthz", "/readyz", "/strategies", "/sales/latest", "/sales/2", "/sales/2/orders"),
            *("/openapi.json", "/", "/admin/", "/static/assets/dom.js"),
        )
    ],
}


@dataclass(frozen=True)
class Got:
    """What is the same in both answers. A body that is no JSON object stands as it is."""

    status: int
    headers: dict[str, str]
    body: Any


def ask(node: Node, asked: Asked) -> Got:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=20)
    try:
        body = iter([asked.body]) if asked.chunked else asked.body
        connection.request(
            asked.method, asked.path, body, dict(asked.headers), encode_chunked=asked.chunked
        )
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        content = answer.read()
    finally:
        connection.close()
    if "x-request-id" in headers and headers["x-request-id"] != "mine":
        headers["x-request-id"] = f"{len(headers['x-request-id'])} characters"
    if "set-cookie" in headers:
        headers["set-cookie"] = re.sub(r"csrftoken=\w+|expires=[^;]+", "...", headers["set-cookie"])
    kept = {name: value for name, value in headers.items() if name not in OF_THE_SERVER}
    return Got(answer.status, kept, _shape(content))


def _shape(content: bytes) -> Any:
    try:
        return _without_what_is_new(json.loads(content))
    except ValueError:
        return len(content)


def _without_what_is_new(body: Any) -> Any:
    if isinstance(body, dict):
        return {
            name: "..." if name in NEW_EACH_TIME else _without_what_is_new(value)
            for name, value in body.items()
        }
    return [_without_what_is_new(each) for each in body] if isinstance(body, list) else body


@pytest.fixture(scope="module")
def nodes(folder: Path, valkey: Valkey) -> Iterator[dict[str, Node]]:
    """Both, each with databases of its own and so with the same numbers of sales and orders."""
    with ExitStack() as everything:
        found = {}
        for number, server in enumerate(("gthread", "asgi")):
            node = node_at(
                folder / f"{server}.log",
                valkey=valkey,
                WEB_SERVER=server,
                REDIS_URL=f"redis://127.0.0.1:{valkey.port}/{4 * number + 2}",
                SHOP_LOCK_WAIT="0.3",
            )
            found[server] = everything.enter_context(node)
            found[server].restock(100)
        yield found


BUY = b"POST /buy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"buyer": "ada", "lock": "redis"}'
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
#: What no client of ours sends, and a server in front may understand otherwise.
RAW: dict[str, bytes] = {
    "two lengths": BUY + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "HTTP/1.0 with two lengths": BUY.replace(b"1.1", b"1.0")
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    + CHUNKS,
    "another coding inside the chunks": BUY + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "a web socket": b"GET /buy HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
}


def answers_to(node: Node, sent: bytes) -> list[int]:
    """The statuses of all answers on one connection, until it is closed or silent."""
    with socket.create_connection(("127.0.0.1", node.port), timeout=1) as client:
        client.sendall(sent)
        brought = b""
        try:
            while part := client.recv(65536):
                brought += part
        except TimeoutError:
            pass
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3})", brought)]


def assert_same(nodes: dict[str, Node], requests: Sequence[Asked]) -> list[Got]:
    gthread, asgi = ([ask(nodes[name], each) for each in requests] for name in ("gthread", "asgi"))
    for asked, one, other in zip(requests, gthread, asgi, strict=True):
        assert other == one, f"{asked.method} {asked.path} {asked.body[:80]!r}"
    return asgi


@pytest.mark.parametrize("name", CASES)
def test_both_answer_alike(nodes: dict[str, Node], name: str) -> None:
    assert_same(nodes, CASES[name])


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("server", ["gthread", "asgi"])
def test_both_refuse_what_a_server_in_front_may_understand_otherwise(
    nodes: dict[str, Node], server: str, name: str
) -> None:
    """Once: what looks like a body to one server must be no second request to the other."""
    (status,) = answers_to(nodes[server], RAW[name])
    assert 400 <= status < 500 or status == 501


@pytest.mark.parametrize("server", ["gthread", "asgi"])
def test_a_header_with_an_underscore_is_not_the_one_with_a_hyphen(
    nodes: dict[str, Node], server: str
) -> None:
    """nginx throws it away, and sets the other one itself: X_Forwarded_For must not replace it."""
    sent = BUY + LENGTH + b"Idempotency_Key: the same\r\nContent_Type: text/plain\r\n\r\n" + BODY
    assert [answers_to(nodes[server], sent) for _ in range(2)] == [[201], [201]], "no replay"


@pytest.mark.parametrize("server", ["gthread", "asgi"])
def test_a_probe_by_ip_address_keeps_its_connection(nodes: dict[str, Node], server: str) -> None:
    """What is answered before every other middleware has no Content-Length of Django's."""
    probe = http.client.HTTPConnection("127.0.0.1", nodes[server].port, timeout=20)
    seen = []
    for path in ("/healthz", "/readyz", "/healthz"):
        probe.request("GET", path)
        seen.append((probe.getresponse().read()[:1], probe.sock.getsockname()))
    probe.close()
    assert set(seen) == {(b"{", seen[0][1])}


def test_the_cases_meet_every_status_that_they_should(nodes: dict[str, Node]) -> None:
    """Else two servers that refuse everything would be alike."""
    met = {got.status for case in CASES.values() for got in assert_same(nodes, case)}
    assert met >= {200, 201, 302, 400, 403, 404, 405, 410, 411, 422}


def test_a_lock_that_stays_taken_is_503_busy(nodes: dict[str, Node], valkey: Valkey) -> None:
    with ExitStack() as held:
        for database in (3, 7):
            client = held.enter_context(redis.Redis(port=valkey.port, db=database))
            held.enter_context(RedisLock(client, "redis:apple", ttl=10).hold(wait=1))
        (got,) = assert_same(nodes, [buys(lock="redis")])
    assert (got.status, got.headers["retry-after"], got.body["outcome"]) == (503, "1", "busy")


def test_sold_out_is_409_and_a_key_that_has_bought_still_gets_its_order(
    nodes: dict[str, Node],
) -> None:
    for node in nodes.values():
        node.restock(1)
    first, second, again = assert_same(
        nodes, [buys(lock="redis", key="last"), buys(lock="redis"), buys(lock="redis", key="last")]
    )
    assert [first.status, second.status, again.status] == [201, 409, 200]


def test_redis_that_does_not_answer_is_503_unavailable_and_nothing_is_sold(
    nodes: dict[str, Node], valkey: Valkey
) -> None:
    for node in nodes.values():
        node.restock(5)
    outage = Outage(valkey)
    outage.begin()
    try:
        got, of_postgresql = assert_same(nodes, [buys(lock="redis"), buys(lock="row-lock")])
    finally:
        outage.end()
    assert (got.status, got.headers["retry-after"], got.body["outcome"]) == (
        503,
        "1",
        "unavailable",
    )
    assert of_postgresql.status == 201
    (after,) = assert_same(nodes, [buys(lock="redis")])
    assert after.body["stock_seen"] == 4
