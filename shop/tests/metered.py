"""A real node with two workers whose metrics are on, and what its GET /metrics says."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPMessage
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families as families

from shop.tests import servers
from shop.tests.node import Node, new_database

TOKEN = secrets.token_urlsafe(24)
BUYERS = 60
#: (name, labels) -> value
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@contextmanager
def metered_node() -> Iterator[Node]:
    given = {
        "METRICS_TOKEN": TOKEN,
        "WEB_WORKERS": "2",
        "ACCESS_LOG": "1",
        "LOG_FORMAT": "json",
        "SHOP_LOCK_TTL": "1",
        "SHOP_LOCK_WAIT": "5",
    }
    with (
        tempfile.TemporaryDirectory(prefix="oversold-") as folder,
        Node(
            Path(folder) / "node.log",
            database_url=new_database(),
            redis_url=servers.valkey.url,
            environment=given,
        ) as node,
    ):
        yield node


def asked(
    node: Node, path: str, token: str = "", method: str = "GET", **headers: str
) -> tuple[int, str, HTTPMessage]:
    """Status, body and headers of one answer."""
    if token:
        headers["Authorization"] = f"Bearer {token}"
    status, given, text = node.request(method, path, headers=headers)
    return status, text.decode(), given


def samples(node: Node) -> Samples:
    status, text, _ = asked(node, "/metrics", TOKEN)
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families(text)
        for sample in family.samples
    }


def total(found: Samples, name: str, **labels: str) -> float:
    """The sum of all samples of that name with these labels."""
    return sum(
        value
        for (other, has), value in found.items()
        if other == name and has >= frozenset(labels.items())
    )


def rush(node: Node, lock: str, buyers: int = BUYERS, **more: Any) -> Counter[tuple[int, str]]:
    """All at once; how many got which status and outcome."""

    def buy(number: int) -> tuple[int, str]:
        body = json.dumps({"buyer": f"buyer-{number}", "lock": lock, **more}).encode()
        status, answer = node.ask("POST", "/buy", body)
        return status, answer["outcome"]

    with ThreadPoolExecutor(buyers) as pool:
        return Counter(pool.map(buy, range(buyers)))
