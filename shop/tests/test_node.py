"""A real gunicorn node: bodies of any size, and servers that go away in mid-rush and come back."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.postgres import Postgres
from servers.valkey import Valkey
from shop.tests.node import BEARER, Crowd, Node, node_at
from shop.tests.outage import Outage
from shop.tests.till import eventually

STOCK = 100_000


@pytest.fixture(scope="module")
def node(folder: Path, postgres: Postgres, valkey: Valkey) -> Iterator[Node]:
    with node_at(folder / "node.log", postgres=postgres, valkey=valkey) as node:
        yield node


def assert_every_key_has_one_order(node: Node, sale: int, crowd: Crowd) -> None:
    """What the shop answered, what it wrote, and what it took from the shelf are the same."""
    _, report = node.get(f"/sales/{sale}")
    written = {order["key"]: order["order"] for order in node.orders(sale)}
    assert len(written) == report["orders"]
    assert report["lost_updates"] == 0
    assert dict(crowd.bought).items() <= written.items(), "an order that was answered is not there"
    in_doubt = written.keys() - dict(crowd.bought)
    assert len(in_doubt) <= crowd.outcomes.count("unknown"), "a refused buyer has an order"


def test_redis_gone_in_mid_rush_stops_the_sale_until_it_is_back(node: Node, valkey: Valkey) -> None:
    """Without the refusal the rush would go on unlocked, and oversell."""
    sale = node.restock(STOCK)
    processes = node.processes()
    outage = Outage(valkey)
    with Crowd(node, "redis") as crowd:
        crowd.wait_for("sold", 20)
        outage.begin()
        crowd.wait_for("unavailable", 2 * crowd.size)  # whoever was inside is out by now
        _, at_first = node.get(f"/sales/{sale}")
        crowd.wait_for("unavailable", 2 * crowd.size)
        _, later = node.get(f"/sales/{sale}")
        assert later["orders"] == at_first["orders"], "sold without a lock"
        outage.end()
        crowd.wait_for("sold", 20)
    assert set(crowd.outcomes) == {"sold", "unavailable"}
    assert crowd.failed == []
    assert node.processes() == processes, "it sells again without a restart"
    assert_every_key_has_one_order(node, sale, crowd)


def test_postgresql_gone_in_mid_rush_stops_the_sale_until_it_is_back(
    node: Node, postgres: Postgres
) -> None:
    sale = node.restock(STOCK)
    processes = node.processes()
    with Crowd(node, "redis") as crowd:
        crowd.wait_for("sold", 20)
        postgres.stop()
        crowd.wait_for("unavailable", 1)  # one after another: who has the lock waits for the pool
        assert node.get("/healthz") == (200, {"status": "ok"})
        postgres.start()
        crowd.wait_for("sold", 20)
    assert {"sold", "unavailable"} <= set(crowd.outcomes) <= {"sold", "unavailable", "unknown"}
    assert crowd.failed == []
    assert node.processes() == processes, "it sells again without a restart"
    assert_every_key_has_one_order(node, sale, crowd)


def test_a_restart_of_postgresql_between_two_buyers_costs_one_refusal_and_not_one_per_connection(
    node: Node, postgres: Postgres
) -> None:
    """Every connection in the pool is dead then; the first one to meet one throws out all."""
    node.restock(20)
    postgres.stop()
    postgres.start()
    buy = b'{"buyer": "ada", "lock": "redis"}'
    answers = [node.ask("POST", "/buy", buy)[0] for _ in range(10)]
    assert answers == [503] + [201] * 9


@pytest.mark.parametrize(
    ("method", "path", "body", "good"),
    [("POST", "/restock", b'{"stock": 5}', 201), ("GET", "/sales/latest", b"", 200)],
)
def test_a_restart_of_postgresql_costs_one_refusal_where_nobody_buys_too(
    node: Node, postgres: Postgres, method: str, path: str, body: bytes, good: int
) -> None:
    node.restock(1)
    postgres.stop()
    postgres.start()
    answers = [node.ask(method, path, body, BEARER)[0] for _ in range(10)]
    assert answers == [503] + [good] * 9


def test_a_restart_of_postgresql_is_over_for_a_probe_when_it_looks_again(
    node: Node, postgres: Postgres
) -> None:
    assert node.get("/readyz")[0] == 200
    postgres.stop()
    postgres.start()
    eventually(lambda: node.get("/readyz")[0] == 503, what="its connections are dead", timeout=5)
    eventually(lambda: node.get("/readyz")[0] == 200, what="it is ready", timeout=5)


@pytest.mark.parametrize(
    ("body", "headers", "error"),
    [
        (b"", {}, "the request cannot be read"),
        (b'{"buyer": "%s"}' % (b"a" * 10_000_000), {}, "the body is too large"),
        (b"[" * 8000, {}, "the request cannot be read"),
        (b'{"buyer": "\xff"}', {}, "the request cannot be read"),
        (b'{"buyer": "a"}', {"Content-Type": "text/plain"}, "a body of type"),
        (b'{"buyer": "a", "lock": "redlock9"}', {}, "unknown lock 'redlock9'"),
        (b'{"buyer": "a"}', {"Idempotency-Key": "n\xe4h"}, "bad Idempotency-Key"),
    ],
    ids=["empty", "10 MB", "deep", "not utf-8", "text", "unknown lock", "key"],
)
def test_a_bad_request_is_400_in_json_and_the_node_goes_on(
    node: Node, body: bytes, headers: dict[str, str], error: str
) -> None:
    sale = node.restock(1)
    status, answer = node.ask("POST", "/buy", body, headers)
    assert status == 400
    assert answer["outcome"] == "error"
    assert answer["error"].startswith(error)
    assert orders(node, sale) == (0, 1)
    assert node.ask("POST", "/buy", b'{"buyer": "ada", "lock": "redis"}')[0] == 201
    assert orders(node, sale) == (1, 0)


def test_a_get_sells_nothing(node: Node) -> None:
    sale = node.restock(1)
    status, answer = node.get("/buy?buyer=ada&lock=none")
    assert (status, answer["allowed"]) == (405, ["POST"])
    assert orders(node, sale) == (0, 1)


def orders(node: Node, sale: int) -> tuple[Any, Any]:
    _, report = node.get(f"/sales/{sale}")
    return report["orders"], report["stock_left"]


def send_raw(node: Node, request: bytes) -> tuple[int, dict[str, Any]]:
    """Status and JSON body of the answer to these bytes."""
    with socket.create_connection(("127.0.0.1", node.port), timeout=20) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, json.loads(response.read())


def test_a_body_of_no_stated_length_is_read_or_refused_and_never_ignored(node: Node) -> None:
    """Django reads as much as Content-Length says: nothing. The query alone would decide, and sell
    under `none` what the body asked for under `redis`. A server may read the body and state its
    length; where it does not, the shop refuses it."""
    sale = node.restock(1)
    status, answer = send_raw(
        node,
        b"POST /buy?product=apple&buyer=eve HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"a\r\nlock=redis\r\n0\r\n\r\n",
    )
    if status == 411:
        assert answer == {
            "outcome": "error",
            "error": "A body in chunks is not read. Send it with a Content-Length.",
        }
        assert orders(node, sale) == (0, 1)
    else:
        assert (status, answer["lock"]["name"]) == (201, "redis")
