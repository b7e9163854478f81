"""A node of threads and a node of an event loop give the same answers."""

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
from shop.tests.node import BEARER, Node, make_node
from shop.tests.outage import Outage

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
#: Headers that differ between the servers or between two answers.
SERVER_HEADERS = {"date", "expires", "server", "via", "connection", "content-length"}
#: Fields of a body that differ between two sales.
VARYING_FIELDS = {"waited_ms", "held_ms", "fence", "parts", "time"}


@dataclass(frozen=True)
class ContractRequest:
    """A request of the contract."""

    method: str = "POST"
    path: str = "/buy"
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    body: Any = b""
    chunked: bool = False


def purchase(*, key: str = "", headers: Mapping[str, str] = JSON, **fields: Any) -> ContractRequest:
    body = json.dumps({"buyer": "ada", **fields}).encode()
    if key:
        headers = {**headers, "Idempotency-Key": key}
    return ContractRequest(headers=headers, body=body)


#: The order matters: later requests depend on the orders of the earlier ones.
CASES: Sequence[ContractRequest] = [
    purchase(lock="redis", buyer="redis"),
    purchase(lock="none", buyer="none"),
    purchase(lock="row-lock", buyer="row-lock"),
    purchase(lock="token", buyer="token"),
    purchase(lock="fence-at-write", buyer="fence-at-write"),
    purchase(lock="counter", buyer="counter"),
    # sold once, replayed, and another request with that key
    purchase(lock="redis", key="redis"),
    purchase(lock="redis", key="redis"),
    purchase(lock="none", key="none"),
    purchase(lock="none", key="none"),
    purchase(lock="redis", key="redis", buyer="bob"),
    # a form, a query, both, chunks
    ContractRequest(headers=FORM, body=b"buyer=ada&lock=redis"),
    ContractRequest(path="/buy?buyer=ada&lock=redis", headers={}),
    ContractRequest(path="/buy?buyer=ada", body=b'{"lock": "redis"}'),
    ContractRequest(body=b'{"buyer": "ada"}', chunked=True),
    # bad input
    purchase(lock="nonsense"),
    purchase(lock="redis", key="k" * 256),
    purchase(lock="redis", product="pear"),
    ContractRequest(body=b'{"buyer": "ada"'),
    ContractRequest(headers={"Content-Type": "text/plain"}, body=b"buyer=ada"),
    purchase(buyer="a" * 200_000),
    ContractRequest(body=b"a" * (16 * 1024 * 1024 + 1)),
    # a sale that is over
    purchase(lock="redis", sale=1),
    purchase(lock="none", sale=1),
    # pages of other sites, foreign names, request ids
    purchase(headers={**JSON, "Origin": "http://evil.example"}),
    purchase(headers={**JSON, "Sec-Fetch-Site": "cross-site"}),
    purchase(headers={**JSON, "Host": "evil.example"}),
    purchase(lock="redis", headers={**JSON, "X-Request-ID": "mine"}),
    purchase(lock="nonsense", headers={**JSON, "X-Request-ID": "mine"}),
    # everything else
    ContractRequest("GET"),
    ContractRequest("HEAD"),
    ContractRequest("PUT"),
    ContractRequest(path="/buy/", body=b"{}"),
    ContractRequest(path="/nowhere", body=b"{}"),
    ContractRequest(path="/restock", body=b"{}"),
    ContractRequest("GET", "/healthz", BEARER),
    ContractRequest("GET", "/readyz", BEARER),
    ContractRequest("GET", "/strategies", BEARER),
    ContractRequest("GET", "/sales/latest", BEARER),
    ContractRequest("GET", "/sales/2", BEARER),
    ContractRequest("GET", "/sales/2/orders", BEARER),
    ContractRequest("GET", "/nowhere", BEARER),
    ContractRequest("GET", "/", BEARER),
    ContractRequest("GET", "/admin/", BEARER),
    ContractRequest("GET", "/static/assets/dom.js", BEARER),
]


@dataclass(frozen=True)
class ContractAnswer:
    """The part of an answer that both nodes have in common."""

    status: int
    headers: dict[str, str]
    body: Any


def ask(node: Node, request: ContractRequest) -> ContractAnswer:
    body = iter([request.body]) if request.chunked else request.body
    status, message, content = node.request(request.method, request.path, body, request.headers)
    headers = {name.lower(): value for name, value in message.items()}
    if "x-request-id" in headers and headers["x-request-id"] != "mine":
        headers["x-request-id"] = f"{len(headers['x-request-id'])} characters"
    if "set-cookie" in headers:
        headers["set-cookie"] = re.sub(r"csrftoken=\w+|expires=[^;]+", "...", headers["set-cookie"])
    common_headers = {name: value for name, value in headers.items() if name not in SERVER_HEADERS}
    return ContractAnswer(status, common_headers, _common_body(content))


def _common_body(content: bytes) -> Any:
    """Return a JSON body without its varying fields, and the length of any other body."""
    try:
        return json.loads(content, object_hook=_without_varying_fields)
    except ValueError:
        return len(content)


def _without_varying_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: None if name in VARYING_FIELDS else value for name, value in fields.items()}


@pytest.fixture(scope="module")
def nodes(folder: Path, valkey: Valkey) -> Iterator[dict[str, Node]]:
    """Both nodes. Each has its own databases, so that the numbers of sales and orders agree."""
    with ExitStack() as running_nodes:
        node_by_server = {}
        for number, server in enumerate(("gthread", "asgi")):
            node = make_node(
                folder / f"{server}.log",
                valkey=valkey,
                WEB_SERVER=server,
                REDIS_URL=f"redis://127.0.0.1:{valkey.port}/{4 * number + 2}",
                SHOP_LOCK_WAIT="0.3",
            )
            node_by_server[server] = running_nodes.enter_context(node)
            node.restock(100)
        yield node_by_server


def assert_same(
    nodes: dict[str, Node], requests: Sequence[ContractRequest]
) -> list[ContractAnswer]:
    gthread_answers = [ask(nodes["gthread"], request) for request in requests]
    asgi_answers = [ask(nodes["asgi"], request) for request in requests]
    answers = zip(requests, gthread_answers, asgi_answers, strict=True)
    for request, gthread_answer, asgi_answer in answers:
        description = f"{request.method} {request.path} {request.body[:80]!r}"
        assert asgi_answer == gthread_answer, description
    return asgi_answers


def test_both_nodes_answer_alike(nodes: dict[str, Node]) -> None:
    """The statuses are checked, too: two servers that refuse everything would also be alike."""
    statuses = {answer.status for answer in assert_same(nodes, CASES)}
    assert statuses >= {200, 201, 302, 400, 403, 404, 405, 410, 411, 422}


@pytest.mark.parametrize("server", ["gthread", "asgi"])
def test_probe_by_ip_address_keeps_its_connection(nodes: dict[str, Node], server: str) -> None:
    """Django sets no Content-Length on an answer given before every other middleware."""
    probe = http.client.HTTPConnection("127.0.0.1", nodes[server].port, timeout=20)
    replies = []
    for path in ("/healthz", "/readyz", "/healthz"):
        probe.request("GET", path)
        body = probe.getresponse().read()
        replies.append((body[:1], probe.sock.getsockname()))
    probe.close()
    _, first_address = replies[0]
    assert set(replies) == {(b"{", first_address)}


def test_lock_that_stays_held_is_503_busy(nodes: dict[str, Node], valkey: Valkey) -> None:
    with ExitStack() as stack:
        for database in (3, 7):
            client = stack.enter_context(redis.Redis(port=valkey.port, db=database))
            stack.enter_context(RedisLock(client, "redis:apple", ttl=10).hold(wait=1))
        (answer,) = assert_same(nodes, [purchase(lock="redis")])
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.body["outcome"] == "busy"


def test_silent_redis_is_503_unavailable(nodes: dict[str, Node], valkey: Valkey) -> None:
    for node in nodes.values():
        node.restock(2)
    outage = Outage(valkey)
    outage.begin()
    try:
        redis_answer, row_lock_answer = assert_same(
            nodes, [purchase(lock="redis"), purchase(lock="row-lock")]
        )
    finally:
        outage.end()
    assert (redis_answer.status, redis_answer.headers["retry-after"]) == (503, "1")
    assert redis_answer.body["outcome"] == "unavailable"
    assert row_lock_answer.status == 201
    last, sold_out, again = assert_same(
        nodes,
        [
            purchase(lock="redis", key="last"),
            purchase(lock="redis"),
            purchase(lock="redis", key="last"),
        ],
    )
    assert [last.status, sold_out.status, again.status] == [201, 409, 200]
