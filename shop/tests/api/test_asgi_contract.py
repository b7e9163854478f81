"""A node with threads (gthread) and a node with an event loop (asgi) give the same answers.

Each test sends the same requests to both nodes, and compares the answers.
"""

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
from shop.api.parse import MAX_DISCARDED_BYTES
from shop.tests.node import BEARER, Node, make_node
from shop.tests.outage import Outage

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
#: Headers that are not compared, because they differ between the servers or between two answers.
VARYING_HEADERS = {"date", "expires", "server", "via", "connection", "content-length"}
#: Fields of a JSON body that are not compared, because they change with each answer.
VARYING_FIELDS = {"waited_ms", "held_ms", "fence", "parts", "time"}


@dataclass(frozen=True)
class ComparedRequest:
    """A request to which both nodes must give the same answer.

    chunked  whether the body is sent with `Transfer-Encoding: chunked`, without a Content-Length
    """

    method: str = "POST"
    path: str = "/buy"
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    body: Any = b""
    chunked: bool = False


def make_purchase(
    *, key: str = "", headers: Mapping[str, str] = JSON, **fields: Any
) -> ComparedRequest:
    """Return a POST /buy request with these fields.

    key  the Idempotency-Key; an empty text: no such header
    """
    body = json.dumps({"buyer": "ada", **fields}).encode()
    if key:
        headers = {**headers, "Idempotency-Key": key}
    return ComparedRequest(headers=headers, body=body)


#: These requests are sent in this order: some of them depend on orders of earlier requests.
CASES: Sequence[ComparedRequest] = [
    make_purchase(lock="redis", buyer="redis"),
    make_purchase(lock="none", buyer="none"),
    make_purchase(lock="row-lock", buyer="row-lock"),
    make_purchase(lock="token", buyer="token"),
    make_purchase(lock="fence-at-write", buyer="fence-at-write"),
    make_purchase(lock="counter", buyer="counter"),
    # each key buys once, and is then answered with its order again; the third request with the key
    # `redis` is from another buyer, and is refused
    make_purchase(lock="redis", key="redis"),
    make_purchase(lock="redis", key="redis"),
    make_purchase(lock="none", key="none"),
    make_purchase(lock="none", key="none"),
    make_purchase(lock="redis", key="redis", buyer="bob"),
    # the parameters in a form, in the query, in both query and body, and in a chunked body
    ComparedRequest(headers=FORM, body=b"buyer=ada&lock=redis"),
    ComparedRequest(path="/buy?buyer=ada&lock=redis", headers={}),
    ComparedRequest(path="/buy?buyer=ada", body=b'{"lock": "redis"}'),
    ComparedRequest(body=b'{"buyer": "ada"}', chunked=True),
    # bad input
    make_purchase(lock="nonsense"),
    make_purchase(lock="redis", key="k" * 256),
    make_purchase(lock="redis", product="pear"),
    ComparedRequest(body=b'{"buyer": "ada"'),
    ComparedRequest(headers={"Content-Type": "text/plain"}, body=b"buyer=ada"),
    # bodies that are too large: the first is read and discarded, the second not read to its end
    make_purchase(buyer="a" * 200_000),
    ComparedRequest(body=b"a" * (MAX_DISCARDED_BYTES + 1)),
    # sale 1 is closed: the migrations opened it, and the fixture `nodes` has opened sale 2
    make_purchase(lock="redis", sale=1),
    make_purchase(lock="none", sale=1),
    # pages of other sites, a foreign host name, request ids
    make_purchase(headers={**JSON, "Origin": "http://evil.example"}),
    make_purchase(headers={**JSON, "Sec-Fetch-Site": "cross-site"}),
    make_purchase(headers={**JSON, "Host": "evil.example"}),
    make_purchase(lock="redis", headers={**JSON, "X-Request-ID": "mine"}),
    make_purchase(lock="nonsense", headers={**JSON, "X-Request-ID": "mine"}),
    # wrong methods, unknown paths, and requests for reports and pages
    ComparedRequest("GET"),
    ComparedRequest("HEAD"),
    ComparedRequest("PUT"),
    ComparedRequest(path="/buy/", body=b"{}"),
    ComparedRequest(path="/nowhere", body=b"{}"),
    ComparedRequest(path="/restock", body=b"{}"),
    ComparedRequest("GET", "/healthz", BEARER),
    ComparedRequest("GET", "/readyz", BEARER),
    ComparedRequest("GET", "/strategies", BEARER),
    ComparedRequest("GET", "/sales/latest", BEARER),
    ComparedRequest("GET", "/sales/2", BEARER),
    ComparedRequest("GET", "/sales/2/orders", BEARER),
    ComparedRequest("GET", "/nowhere", BEARER),
    ComparedRequest("GET", "/", BEARER),
    ComparedRequest("GET", "/admin/", BEARER),
    ComparedRequest("GET", "/static/assets/dom.js", BEARER),
]


@dataclass(frozen=True)
class ComparableAnswer:
    """An answer without the headers and fields that may differ between the nodes."""

    status: int
    headers: dict[str, str]
    body: Any


def send(node: Node, request: ComparedRequest) -> ComparableAnswer:
    """Send a request to a node, and return the answer without what may differ between the nodes."""
    body = iter([request.body]) if request.chunked else request.body
    status, all_headers, content = node.request(request.method, request.path, body, request.headers)
    headers = {name.lower(): value for name, value in all_headers.items()}
    # Only the length of a random id is compared. The id `mine` comes from the request.
    if "x-request-id" in headers and headers["x-request-id"] != "mine":
        headers["x-request-id"] = f"{len(headers['x-request-id'])} characters"
    if "set-cookie" in headers:
        headers["set-cookie"] = re.sub(r"csrftoken=\w+|expires=[^;]+", "...", headers["set-cookie"])
    common_headers = {name: value for name, value in headers.items() if name not in VARYING_HEADERS}
    return ComparableAnswer(status, common_headers, _make_body_comparable(content))


def _make_body_comparable(content: bytes) -> Any:
    """Return the part of a body that both nodes must have in common.

    It is the JSON without the fields in VARYING_FIELDS or, if the body is not JSON, its length.
    """
    try:
        return json.loads(content, object_hook=_clear_varying_fields)
    except ValueError:
        return len(content)


def _clear_varying_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Set the fields of a JSON object that are in VARYING_FIELDS to None."""
    return {name: None if name in VARYING_FIELDS else value for name, value in fields.items()}


#: The number of the Redis database with a node's cache. The node's locks are in the database with
#: the next number.
CACHE_DATABASES = {"gthread": 2, "asgi": 6}


@pytest.fixture(scope="module")
def nodes(folder: Path, valkey: Valkey) -> Iterator[dict[str, Node]]:
    """A node with gthread and a node with asgi, keyed by the name of the server.

    Each node has separate databases, so sales and orders get the same numbers in both nodes. On
    each node the migrations have opened sale 1, and restock() opens sale 2 (100 apples).
    """
    with ExitStack() as running_nodes:
        node_by_server = {}
        for server, cache_database in CACHE_DATABASES.items():
            node = make_node(
                folder / f"{server}.log",
                valkey=valkey,
                WEB_SERVER=server,
                REDIS_URL=f"redis://127.0.0.1:{valkey.port}/{cache_database}",
                SHOP_LOCK_WAIT="0.3",
            )
            node_by_server[server] = running_nodes.enter_context(node)
            node.restock(100)
        yield node_by_server


def send_to_both(
    nodes: dict[str, Node], requests: Sequence[ComparedRequest]
) -> list[ComparableAnswer]:
    """Send the requests to both nodes. Assert that the answers are equal, and return them."""
    gthread_answers = [send(nodes["gthread"], request) for request in requests]
    asgi_answers = [send(nodes["asgi"], request) for request in requests]
    answers = zip(requests, gthread_answers, asgi_answers, strict=True)
    for request, gthread_answer, asgi_answer in answers:
        description = f"{request.method} {request.path} {request.body[:80]!r}"
        assert asgi_answer == gthread_answer, description
    return asgi_answers


def test_both_nodes_give_the_same_answers(nodes: dict[str, Node]) -> None:
    """All requests in CASES get the same answer from both nodes.

    Two nodes that refuse every request would give the same answers, too. So the test also asserts
    that each of several statuses occurs.
    """
    statuses = {answer.status for answer in send_to_both(nodes, CASES)}
    assert statuses >= {200, 201, 302, 400, 403, 404, 405, 410, 411, 422}


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json; charset=hex",
        "application/json; charset=undefined",
        "application/json; charset=punycode",
        "application/json; charset=latin-1",
        "application/json; x*=nope''%20",
        "application/x-www-form-urlencoded; charset=hex",
        "multipart/form-data; boundary=b; charset=hex",
    ],
)
def test_bad_content_type_is_400_only_with_a_body(
    nodes: dict[str, Node], content_type: str
) -> None:
    """The Content-Type of a request without a body is ignored."""
    headers = {**BEARER, "Content-Type": content_type}
    answer_without_body, refusal = send_to_both(
        nodes,
        [
            ComparedRequest("GET", "/healthz?x=1", headers),
            ComparedRequest("POST", "/buy?x=1", headers, b'{"buyer": "ada"}'),
        ],
    )
    assert (answer_without_body.status, refusal.status) == (200, 400)
    assert refusal.body["error"] == f"a body of type {content_type!r} cannot be read"
    assert "application/json" in refusal.body["allowed"]


@pytest.mark.parametrize("charset", ["utf-8", "UTF8", '"utf_8"'])
def test_alias_of_utf_8_is_accepted(nodes: dict[str, Node], charset: str) -> None:
    """A form may name its charset UTF-8 in any spelling that Python accepts."""
    headers = {"Content-Type": f"application/x-www-form-urlencoded; charset={charset}"}
    (answer,) = send_to_both(
        nodes, [ComparedRequest(headers=headers, body=b"buyer=ada&lock=redis")]
    )
    assert answer.status == 201


@pytest.mark.parametrize("server", ["gthread", "asgi"])
def test_probe_by_ip_address_keeps_its_connection(nodes: dict[str, Node], server: str) -> None:
    """Several health checks by IP address can use one connection.

    A middleware answers them, without a view. The answer must have a Content-Length: without it the
    server would close the connection, or send the answer in chunks.
    """
    client = http.client.HTTPConnection("127.0.0.1", nodes[server].port, timeout=20)
    local_addresses = set()
    for path in ("/healthz", "/readyz", "/healthz"):
        client.request("GET", path)
        assert json.loads(client.getresponse().read())
        local_addresses.add(client.sock.getsockname())
    client.close()
    assert len(local_addresses) == 1, "all requests should have used one connection"


def test_lock_that_stays_held_is_503_busy(nodes: dict[str, Node], valkey: Valkey) -> None:
    """Both nodes answer `busy` if the lock does not become free while the buyer waits for it.

    The buyer waits for 0.3 s (SHOP_LOCK_WAIT of the nodes). The test holds the lock for longer.
    """
    with ExitStack() as stack:
        for cache_database in CACHE_DATABASES.values():
            # A node's locks are in the database whose number follows that of its cache.
            client = stack.enter_context(redis.Redis(port=valkey.port, db=cache_database + 1))
            stack.enter_context(RedisLock(client, "redis:apple", ttl=10).hold(wait=1))
        (answer,) = send_to_both(nodes, [make_purchase(lock="redis")])
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.body["outcome"] == "busy"


def test_purchase_without_redis_is_503_unavailable(nodes: dict[str, Node], valkey: Valkey) -> None:
    """During an outage of Redis, the strategy `redis` refuses a purchase; `row-lock` sells a unit.

    After the outage `redis` sells the last unit, and a retry with the same key gets the same order.
    """
    for node in nodes.values():
        node.restock(2)
    outage = Outage(valkey)
    outage.begin()
    try:
        redis_answer, row_lock_answer = send_to_both(
            nodes, [make_purchase(lock="redis"), make_purchase(lock="row-lock")]
        )
    finally:
        outage.end()
    assert (redis_answer.status, redis_answer.headers["retry-after"]) == (503, "1")
    assert redis_answer.body["outcome"] == "unavailable"
    assert row_lock_answer.status == 201
    last_unit, sold_out, replay = send_to_both(
        nodes,
        [
            make_purchase(lock="redis", key="last"),
            make_purchase(lock="redis"),
            make_purchase(lock="redis", key="last"),
        ],
    )
    assert [last_unit.status, sold_out.status, replay.status] == [201, 409, 200]
