"""GET /metrics of a real node with two workers: its counters are the answers that buyers got."""

import json
import os
import re
import secrets
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPMessage
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families as parse_metrics
from pytest_django import Settings

from shop.ops.redis import locks_client
from shop.tests import servers as test_servers
from shop.tests.node import Node, make_node
from shop.tests.purchases import buy, eventually, open_sale, rolled_back

TOKEN = secrets.token_urlsafe(24)
STOCK = 20
BUYERS = 60
#: (Name of a metric, its {(label, value)}) -> number.
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[Node]:
    """A real node with two workers and with metrics."""
    node = make_node(
        folder / "metrics.log",
        valkey=test_servers.valkey,
        METRICS_TOKEN=TOKEN,
        WEB_WORKERS="2",
        ACCESS_LOG="1",
        LOG_FORMAT="json",
        SHOP_LOCK_TTL="1",
        SHOP_LOCK_WAIT="5",
    )
    with node:
        yield node


def request(
    node: Node, path: str, token: str = "", method: str = "GET", **headers: str
) -> tuple[int, HTTPMessage, str]:
    """Send one request, and return the status, headers and text of its answer."""
    if token:
        headers["Authorization"] = f"Bearer {token}"
    status, answer_headers, content = node.request(method, path, headers=headers)
    return status, answer_headers, content.decode()


def read_samples(node: Node) -> Samples:
    """Return all samples of GET /metrics."""
    status, _, text = request(node, "/metrics", TOKEN)
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_metrics(text)
        for sample in family.samples
    }


def sum_samples(samples: Samples, name: str, **labels: str) -> float:
    """Return the sum of all samples of that name with these labels."""
    return sum(
        value
        for (sample_name, sample_labels), value in samples.items()
        if sample_name == name and sample_labels >= frozenset(labels.items())
    )


def sum_increase(before: Samples, after: Samples, name: str, **labels: str) -> float:
    """Return by how much the sum of the samples of that name with these labels has risen."""
    return sum_samples(after, name, **labels) - sum_samples(before, name, **labels)


def buy_at_once(
    node: Node, lock: str, buyers: int = BUYERS, **fields: Any
) -> Counter[tuple[int, str]]:
    """Let all buyers buy at once, and count the answers by status and outcome."""

    def buy(number: int) -> tuple[int, str]:
        body = json.dumps({"buyer": f"buyer-{number}", "lock": lock, **fields}).encode()
        status, answer = node.request_json("POST", "/buy", body)
        return status, answer["outcome"]

    with ThreadPoolExecutor(buyers) as pool:
        return Counter(pool.map(buy, range(buyers)))


# --- access -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token", ["", "wrong", f"{TOKEN}x", TOKEN[:-1]], ids=["none", "wrong", "longer", "shorter"]
)
def test_metrics_without_the_token_are_refused(node: Node, token: str) -> None:
    status, headers, text = request(node, "/metrics", token)
    assert status == 401
    assert headers["WWW-Authenticate"] == "Bearer"
    assert "oversold_" not in text


def test_metrics_cannot_be_posted(node: Node) -> None:
    status, _, _ = request(node, "/metrics", TOKEN, method="POST")
    assert status == 405


@rolled_back
def test_metrics_are_off_in_a_shop_without_their_token() -> None:
    assert Client().get("/metrics").status_code == 404


def test_metrics_are_served_under_any_host_name(node: Node) -> None:
    """In a cluster Prometheus uses an address that is not in ALLOWED_HOSTS."""
    status, headers, _ = request(node, "/metrics", TOKEN, Host="10.1.2.3:8000")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert not re.search("[0-9]", headers.get("Server", "")), "no version"


# --- counters -----------------------------------------------------------------------------------


def test_counters_equal_the_answers_of_a_rush(node: Node) -> None:
    """Each of the two workers answers with the sums over both workers."""
    node.restock(STOCK)
    baseline = read_samples(node)
    answers = buy_at_once(node, "redis")
    assert answers == {(201, "sold"): STOCK, (409, "sold_out"): BUYERS - STOCK}
    invalid_answers = buy_at_once(node, "no-such-lock", buyers=3)
    assert invalid_answers == {(400, "error"): 3}
    for _ in range(4):  # probably each worker answers at least one of these requests
        increase = partial(sum_increase, baseline, read_samples(node))
        assert increase("oversold_purchases_total") == BUYERS + 3
        assert increase("oversold_purchases_total", lock="redis", outcome="sold") == STOCK
        assert (
            increase("oversold_purchases_total", lock="redis", outcome="sold_out") == BUYERS - STOCK
        )
        assert increase("oversold_purchases_total", lock="invalid", outcome="error") == 3
        for status, count in (("201", STOCK), ("409", BUYERS - STOCK), ("400", 3)):
            assert increase("oversold_http_requests_total", route="/buy", status=status) == count
        assert increase("oversold_http_request_seconds_count", route="/buy") == BUYERS + 3
        # A buyer who is answered `sold_out` has held the lock, too.
        for name in ("wait_seconds_count", "held_seconds_count", "releases_total"):
            assert increase(f"oversold_lock_{name}", lock="redis") == BUYERS, name
        assert increase("oversold_lock_releases_total", outcome="released") == BUYERS
        assert increase("oversold_lock_lost_total") == 0
        waited_seconds = increase("oversold_lock_wait_seconds_sum", lock="redis")
        assert 0 < waited_seconds <= increase("oversold_http_request_seconds_sum", route="/buy")


def test_each_worker_writes_its_own_counters(node: Node) -> None:
    """The process id of a worker is in the names of its files, and both workers have files."""
    worker_pids = {process.pid for process in node.find_processes()[1:]}
    assert len(worker_pids) == 2

    def have_both_counted_or_buy_again() -> bool:
        """Return whether each worker has a file of counters. If one has none, let buyers buy."""
        files = find_counter_folder(node).glob("counter_*.db")
        if {int(file.stem.rpartition("_")[2]) for file in files} == worker_pids:
            return True
        buy_at_once(node, "redis")  # one worker may have got every connection so far
        return False

    eventually(have_both_counted_or_buy_again, what="both workers count")


def test_values_from_requests_do_not_become_labels(node: Node) -> None:
    """With such labels a client could fill the memory of the nodes and of Prometheus."""
    node.restock(1)

    def send_invented_values() -> None:
        invented_name = secrets.token_hex(8)
        request(node, f"/{invented_name}/x")
        request(node, f"/sales/{secrets.randbelow(10**9) + 10**9}")
        request(node, f"/buy?lock={invented_name}&buyer={invented_name}", method="POST")
        request(node, f"/buy?product={invented_name}&buyer={invented_name}", method="POST")
        request(node, "/healthz", method=f"M{invented_name.upper()}")

    send_invented_values()  # the first call creates the series of these routes and outcomes
    series_before = read_samples(node).keys()
    for _ in range(30):
        send_invented_values()
    assert read_samples(node).keys() - series_before == set()
    _, _, text = request(node, "/metrics", TOKEN)
    assert "apple" not in text
    assert not re.search('="[^"]*[0-9a-f]{16}', text), "no label should have an invented value"


def test_lost_lease_and_renewals_are_counted(node: Node) -> None:
    """The key is deleted while its holder works, and the watchdog notices it.

    The holder pauses for 2 s. The lease lasts 1 s (SHOP_LOCK_TTL), so it is renewed meanwhile.
    """
    node.restock(5)
    baseline = read_samples(node)
    with ThreadPoolExecutor(1) as pool:
        purchase = pool.submit(buy_at_once, node, "redis", 1, hold_ms=2_000)
        renewals = "oversold_lock_renewals_total"
        eventually(
            lambda: sum_increase(baseline, read_samples(node), renewals) > 0,
            what="the lease is renewed",
        )
        client = locks_client()
        keys: Any = client.keys("*redis:apple*")
        client.delete(*keys)
        losses = "oversold_lock_lost_total"
        eventually(
            lambda: (
                sum_increase(baseline, read_samples(node), losses, lock="redis", loss="gone") > 0
            ),
            what="the loss is counted",
        )
        assert purchase.result(10) == {(201, "sold"): 1}  # the fence protects the stock
    releases = "oversold_lock_releases_total"
    eventually(
        lambda: sum_increase(baseline, read_samples(node), releases, outcome="expired") > 0,
        what="the release of the expired lock is counted",
    )


def test_pools_of_all_workers_are_counted(node: Node) -> None:
    """Each of the two workers has a pool of 8 connections (SHOP_DB_POOL).

    One buyer holds a row's lock, and the other waits for it, so two connections are in use.
    """
    pool = "oversold_db_pool_connections"
    eventually(lambda: sum_samples(read_samples(node), pool) == 16, what="both pools are counted")
    node.restock(5)
    with ThreadPoolExecutor(1) as buyers:
        purchases = buyers.submit(buy_at_once, node, "row-lock", 2, hold_ms=1_500)
        eventually(
            lambda: sum_samples(read_samples(node), pool, state="in_use") == 2,
            what="two connections are in use",
        )
        assert sum(purchases.result(20).values()) == 2
    eventually(
        lambda: sum_samples(read_samples(node), pool, state="in_use") == 0,
        what="all connections are returned",
    )
    assert sum_samples(read_samples(node), "oversold_db_pool_waiting") == 0


@rolled_back
def test_purchase_is_answered_if_counting_it_fails(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full /dev/shm prevents the count of a purchase, whose unit is already sold."""
    from shop.ops import metrics  # imported late: a shop without METRICS_TOKEN never imports it

    settings.METRICS_TOKEN = TOKEN
    open_sale(1)

    def raise_error(*args: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(metrics, "count_request", raise_error)
    assert buy(lock="none").status == 201
    assert "a request was not counted in the metrics" in caplog.text


@rolled_back
def test_request_without_a_strategy_is_counted(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """A request for a report names no strategy, and is still counted without an error."""
    settings.METRICS_TOKEN = TOKEN
    assert Client().get("/sales/999999999").status_code == 404
    assert "was not counted" not in caplog.text


# --- workers come and go ------------------------------------------------------------------------


def find_counter_folder(node: Node) -> Path:
    """Return the folder of the workers' counters, once the first worker has opened its own."""

    def list_open_counters() -> list[Path]:
        _, worker, *_ = node.find_processes()
        paths = [Path(file.path) for file in worker.open_files()]
        return [path for path in paths if path.suffix == ".db"]

    eventually(list_open_counters, what="the worker has opened its counters")
    (folder,) = {path.parent for path in list_open_counters()}
    return folder


def test_killed_worker_loses_its_gauges_and_keeps_its_counts(node: Node) -> None:
    """The gauges of a worker's connection pool are removed with the worker.

    gunicorn logs the end of the worker in JSON, the node's LOG_FORMAT.
    """
    node.restock(3)
    buy_at_once(node, "redis", buyers=5)
    baseline = read_samples(node)
    _, killed_worker, *_ = node.find_processes()
    old_pids = {process.pid for process in node.find_processes()}
    folder = find_counter_folder(node)

    def find_gauge_files(pid: int) -> list[Path]:
        return list(folder.glob(f"gauge_live*_{pid}.db"))

    assert find_gauge_files(killed_worker.pid)
    os.kill(killed_worker.pid, signal.SIGKILL)

    def find_new_pids() -> set[int]:
        return {process.pid for process in node.find_processes()} - old_pids

    eventually(find_new_pids, what="another worker took its place")
    (new_pid,) = find_new_pids()
    eventually(lambda: find_gauge_files(new_pid), what="the new worker shows its pool")
    assert not find_gauge_files(killed_worker.pid)
    pool = "oversold_db_pool_connections"
    eventually(lambda: sum_samples(read_samples(node), pool) == 16, what="two pools of 8 are left")
    purchases = "oversold_purchases_total"
    assert sum_samples(read_samples(node), purchases) == sum_samples(baseline, purchases)
    lines = [json.loads(line) for line in node.log.read_text().splitlines()]
    assert "gunicorn.error" in {line["logger"] for line in lines}


def test_counter_folder_is_private_and_removed_with_the_node(node: Node) -> None:
    """A new node at the same address empties the folder that a killed node left.

    This test kills the node that all tests of the module use, so it runs last.
    """
    folder = find_counter_folder(node)
    assert folder.stat().st_mode & 0o777 == 0o700
    node.restock(1)
    assert buy_at_once(node, "redis", buyers=1) == {(201, "sold"): 1}
    for process in node.find_processes():
        process.kill()
    node.process.wait(5)
    assert list(folder.glob("*.db")), "the killed node should have left its files"
    with node:
        assert find_counter_folder(node) == folder
        assert sum_samples(read_samples(node), "oversold_purchases_total") == 0, (
            "the counters should start at 0"
        )
    assert not folder.exists()
