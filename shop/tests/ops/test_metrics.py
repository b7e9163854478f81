"""GET /metrics of a real node with two workers: its counters are the answers that buyers got."""

import json
import os
import re
import secrets
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPMessage
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families as families
from pytest_django import Settings

from shop.ops.redis import locks_client
from shop.tests import servers
from shop.tests.node import Node, node_at
from shop.tests.purchases import buy, eventually, open_sale, rolled_back

TOKEN = secrets.token_urlsafe(24)
STOCK, BUYERS = 20, 60
#: (name, labels) -> value
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[Node]:
    """A real node with two workers whose metrics are on."""
    logs = {"ACCESS_LOG": "1", "LOG_FORMAT": "json"}
    short = {"SHOP_LOCK_TTL": "1", "SHOP_LOCK_WAIT": "5"}
    given: Any = {"METRICS_TOKEN": TOKEN, "WEB_WORKERS": "2", **logs, **short}
    with node_at(folder / "metrics.log", valkey=servers.valkey, **given) as node:
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


# --- who is let in ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token", ["", "wrong", f"{TOKEN}x", TOKEN[:-1]], ids=["none", "wrong", "longer", "shorter"]
)
def test_without_the_token_it_is_refused(node: Node, token: str) -> None:
    status, text, headers = asked(node, "/metrics", token)
    assert status == 401
    assert headers["WWW-Authenticate"] == "Bearer"
    assert "oversold_" not in text
    assert asked(node, "/metrics", TOKEN, method="POST")[0] == 405


def test_metrics_are_served_under_any_host_name(node: Node) -> None:
    """By its address in a cluster, say, that is in no ALLOWED_HOSTS."""
    status, _, headers = asked(node, "/metrics", TOKEN, Host="10.1.2.3:8000")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert not re.search("[0-9]", headers.get("Server", "")), "no version"


# --- what is counted ----------------------------------------------------------------------------


def test_after_a_rush_the_counters_are_the_answers_that_were_given(node: Node) -> None:
    """Whichever worker is asked: both together took the 60 buyers."""
    node.restock(STOCK)
    before = samples(node)
    answers = rush(node, "redis")
    assert answers == {(201, "sold"): STOCK, (409, "sold_out"): BUYERS - STOCK}
    invalid = rush(node, "no-such-lock", buyers=3)
    assert invalid == {(400, "error"): 3}
    for _ in range(4):  # each worker is asked sooner or later
        after = samples(node)

        def more(name: str, after: Samples = after, **labels: str) -> float:
            return total(after, name, **labels) - total(before, name, **labels)

        assert more("oversold_purchases_total") == BUYERS + 3
        assert more("oversold_purchases_total", lock="redis", outcome="sold") == STOCK
        assert more("oversold_purchases_total", lock="redis", outcome="sold_out") == BUYERS - STOCK
        assert more("oversold_purchases_total", lock="invalid", outcome="error") == 3
        for status, count in (("201", STOCK), ("409", BUYERS - STOCK), ("400", 3)):
            assert more("oversold_http_requests_total", route="/buy", status=status) == count
        assert more("oversold_http_request_seconds_count", route="/buy") == BUYERS + 3
        for name in ("wait_seconds_count", "held_seconds_count", "releases_total"):
            assert more(f"oversold_lock_{name}", lock="redis") == BUYERS, name
        assert more("oversold_lock_releases_total", outcome="released") == BUYERS
        assert more("oversold_lock_lost_total") == 0
        waited = more("oversold_lock_wait_seconds_sum", lock="redis")
        assert 0 < waited <= more("oversold_http_request_seconds_sum", route="/buy")
    pids = {process.pid for process in node.processes()[1:]}
    assert len(pids) == 2

    def both_counted() -> bool:
        """The system may give one worker every connection: then others come."""
        files = folder_of(node).glob("counter_*.db")
        if {int(file.stem.rpartition("_")[2]) for file in files} == pids:
            return True
        rush(node, "redis")
        return False

    eventually(both_counted, what="both workers count")


def test_what_a_client_invents_is_no_label(node: Node) -> None:
    """Or anybody could fill the memory of the nodes, and of Prometheus."""
    node.restock(1)

    def invent() -> None:
        made_up = secrets.token_hex(8)
        asked(node, f"/{made_up}/x")
        asked(node, f"/sales/{secrets.randbelow(10**9) + 10**9}")
        asked(node, f"/buy?lock={made_up}&buyer={made_up}", method="POST")
        asked(node, f"/buy?product={made_up}&buyer={made_up}", method="POST")
        asked(node, "/healthz", method=f"M{made_up.upper()}")

    invent()
    before = samples(node).keys()
    for _ in range(30):
        invent()
    assert samples(node).keys() - before == set()
    text = asked(node, "/metrics", TOKEN)[1]
    assert "apple" not in text
    assert not re.search('="[^"]*[0-9a-f]{16}', text), "a made-up name is a label's value"


def test_a_lost_lease_and_renewals_are_counted(node: Node) -> None:
    """The key goes while its holder works: the watchdog finds it gone."""
    node.restock(5)
    before = samples(node)
    with ThreadPoolExecutor(1) as pool:
        buying = pool.submit(rush, node, "redis", 1, hold_ms=2_000)
        renewed = "oversold_lock_renewals_total"
        eventually(
            lambda: total(samples(node), renewed) > total(before, renewed), what="it is renewed"
        )
        client = locks_client()
        keys: Any = client.keys("*redis:apple*")
        client.delete(*keys)
        lost = "oversold_lock_lost_total"
        eventually(
            lambda: (
                total(samples(node), lost, lock="redis", loss="gone")
                > total(before, lost, lock="redis", loss="gone")
            ),
            what="the loss is counted",
        )
        assert buying.result(10) == {(201, "sold"): 1}  # the fence is what protects the stock
    released = "oversold_lock_releases_total"
    eventually(
        lambda: (
            total(samples(node), released, outcome="expired")
            > total(before, released, outcome="expired")
        ),
        what="the release that found nothing is counted",
    )


def test_the_pool_of_every_worker_is_shown(node: Node) -> None:
    """Two workers of 8 (SHOP_DB_POOL)."""
    pool = "oversold_db_pool_connections"
    eventually(lambda: total(samples(node), pool) == 16, what="both pools are counted")
    node.restock(5)
    with ThreadPoolExecutor(1) as buyers:
        buying = buyers.submit(rush, node, "row-lock", 2, hold_ms=1_500)
        eventually(lambda: total(samples(node), pool, state="in_use") == 2, what="two are in use")
        assert sum(buying.result(20).values()) == 2
    eventually(lambda: total(samples(node), pool, state="in_use") == 0, what="all are back")
    assert total(samples(node), "oversold_db_pool_waiting") == 0


@rolled_back
def test_a_purchase_is_answered_even_if_it_cannot_be_counted(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The unit is sold by then: a full /dev/shm must not make a 500 of it. Without a token in the
    settings there is no such page."""
    from shop.ops import metrics

    assert Client().get("/metrics").status_code == 404
    settings.METRICS_TOKEN = TOKEN
    open_sale(1)

    def fails(*what: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(metrics, "count", fails)
    assert buy(lock="none").status == 201
    assert "not counted" in caplog.text


# --- workers come and go ------------------------------------------------------------------------


def folder_of(node: Node) -> Path:
    """Where a node's workers count."""
    opened = [Path(file.path) for file in node.processes()[1].open_files()]
    (folder,) = {path.parent for path in opened if path.suffix == ".db"}
    return folder


def test_a_killed_worker_takes_its_gauges_along_and_leaves_its_counts(node: Node) -> None:
    node.restock(3)
    rush(node, "redis", buyers=5)
    before = samples(node)
    victim, pids = node.processes()[1], {process.pid for process in node.processes()}
    folder = folder_of(node)

    def gauges(pid: int) -> list[Path]:
        return list(folder.glob(f"gauge_live*_{pid}.db"))

    assert gauges(victim.pid)
    os.kill(victim.pid, signal.SIGKILL)

    def newcomers() -> set[int]:
        return {process.pid for process in node.processes()} - pids

    eventually(lambda: bool(newcomers()), what="another worker took its place")
    (new,) = newcomers()
    eventually(lambda: bool(gauges(new)), what="the new worker shows its pool")
    assert not gauges(victim.pid)
    pool = "oversold_db_pool_connections"
    eventually(lambda: total(samples(node), pool) == 16, what="two pools, not three")
    sold = "oversold_purchases_total"
    assert total(samples(node), sold) == total(before, sold)
    lines = [json.loads(line) for line in node.log.read_text().splitlines()]
    assert "gunicorn.error" in {line["logger"] for line in lines}, "it says so, in JSON too"


def test_the_folder_is_private_and_goes_with_the_node(node: Node) -> None:
    """Runs last: the node is gone."""
    counted = folder_of(node)
    assert counted.stat().st_mode & 0o777 == 0o700
    node.restock(1)
    assert rush(node, "redis", buyers=1) == {(201, "sold"): 1}
    for process in node.processes():
        process.kill()
    node.process.wait(5)
    assert list(counted.glob("*.db")), "left by the kill"
    with node:
        assert folder_of(node) == counted
        assert total(samples(node), "oversold_purchases_total") == 0, "begun anew"
    assert not counted.exists()
