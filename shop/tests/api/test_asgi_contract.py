"""The same requests to a node of threads and to one of an event loop have the same answers."""

import http.client
import json
import re
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
NEW = {"waited_ms", "held_ms", "fence", "parts", "time"}


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
CASES: Sequence[Asked] = [
    *(
        buys(lock=lock, buyer=lock)
        for lock in ("redis", "none", "row-lock", "token", "fence-at-write", "counter")
    ),
    # sold once, replayed, and another request with that key
    *(buys(lock=lock, key=lock) for lock in ("redis", "redis", "none", "none")),
    buys(lock="redis", key="redis", buyer="bob"),
    # a form, a query, both, chunks
    Asked(headers=FORM, body=b"buyer=ada&lock=redis"),
    Asked(path="/buy?buyer=ada&lock=redis", headers={}),
    Asked(path="/buy?buyer=ada", body=b'{"lock": "redis"}'),
    Asked(body=b'{"buyer": "ada"}', chunked=True),
    # bad input
    buys(lock="nonsense"),
    buys(lock="redis", key="k" * 256),
    buys(lock="redis", product="pear"),
    Asked(body=b'{"buyer": "ada"'),
    Asked(headers={"Content-Type": "text/plain"}, body=b"buyer=ada"),
    buys(buyer="a" * 200_000),
    Asked(body=b"a" * (16 * 1024 * 1024 + 1)),
    # a sale that is over
    *(buys(lock=lock, sale=1) for lock in ("redis", "none")),
    # pages of other sites, foreign names, request ids
    buys(headers={**JSON, "Origin": "http://evil.example"}),
    buys(headers={**JSON, "Sec-Fetch-Site": "cross-site"}),
    buys(headers={**JSON, "Host": "evil.example"}),
    buys(lock="redis", headers={**JSON, "X-Request-ID": "mine"}),
    buys(lock="nonsense", headers={**JSON, "X-Request-ID": "mine"}),
    # everything else
    *(Asked(method) for method in ("GET", "HEAD", "PUT")),
    *(Asked(path=path, body=b"{}") for path in ("/buy/", "/nowhere", "/restock")),
    *(
        Asked("GET", path, BEARER)
        for path in (
            *("/healthz", "/readyz", "/strategies", "/sales/latest", "/sales/2", "/sales/2/orders"),
            *("/nowhere", "/", "/admin/", "/static/assets/dom.js"),
        )
    ),
]


@dataclass(frozen=True)
class Got:
    """What is the same in both answers."""

    status: int
    headers: dict[str, str]
    body: Any


def ask(node: Node, asked: Asked) -> Got:
    body = iter([asked.body]) if asked.chunked else asked.body
    status, given, content = node.request(asked.method, asked.path, body, asked.headers)
    headers = {name.lower(): value for name, value in given.items()}
    if "x-request-id" in headers and headers["x-request-id"] != "mine":
        headers["x-request-id"] = f"{len(headers['x-request-id'])} characters"
    if "set-cookie" in headers:
        headers["set-cookie"] = re.sub(r"csrftoken=\w+|expires=[^;]+", "...", headers["set-cookie"])
    kept = {name: value for name, value in headers.items() if name not in OF_THE_SERVER}
    return Got(status, kept, _shape(content))


def _shape(content: bytes) -> Any:
    """The body, without what is new each time; of one that is no JSON the length."""
    try:
        return json.loads(content, object_hook=lambda body: body | dict.fromkeys(NEW & {*body}))
    except ValueError:
        return len(content)


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


def assert_same(nodes: dict[str, Node], requests: Sequence[Asked]) -> list[Got]:
    gthread, asgi = ([ask(nodes[name], each) for each in requests] for name in ("gthread", "asgi"))
    for asked, one, other in zip(requests, gthread, asgi, strict=True):
        assert other == one, f"{asked.method} {asked.path} {asked.body[:80]!r}"
    return asgi


def test_both_answer_alike_with_every_status_that_they_should(nodes: dict[str, Node]) -> None:
    """Two servers that refuse everything would be alike, too."""
    met = {got.status for got in assert_same(nodes, CASES)}
    assert met >= {200, 201, 302, 400, 403, 404, 405, 410, 411, 422}


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


def test_a_lock_that_stays_taken_is_503_busy(nodes: dict[str, Node], valkey: Valkey) -> None:
    with ExitStack() as held:
        for database in (3, 7):
            client = held.enter_context(redis.Redis(port=valkey.port, db=database))
            held.enter_context(RedisLock(client, "redis:apple", ttl=10).hold(wait=1))
        (got,) = assert_same(nodes, [buys(lock="redis")])
    assert (got.status, got.headers["retry-after"], got.body["outcome"]) == (503, "1", "busy")


def test_redis_that_does_not_answer_is_503_unavailable_and_nothing_is_sold(
    nodes: dict[str, Node], valkey: Valkey
) -> None:
    for node in nodes.values():
        node.restock(2)
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
    last, sold_out, again = assert_same(
        nodes, [buys(lock="redis", key="last"), buys(lock="redis"), buys(lock="redis", key="last")]
    )
    assert [last.status, sold_out.status, again.status] == [201, 409, 200]
