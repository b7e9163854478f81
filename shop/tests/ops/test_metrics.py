"""GET /metrics of a real node with two workers: the counters equal the answers that buyers got."""

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
#: Units on sale, and buyers who want one each.
STOCK = 20
BUYERS = 60
#: Connections in the database pools of the node: 8 for each of its 2 workers (SHOP_DB_POOL).
CONNECTIONS_OF_BOTH_POOLS = 2 * 8
#: (Name of a sample, its set of (label, value) pairs) -> the sample's number.
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
    """Send one request, and return the status, headers and text of its answer.

    token    the bearer token; an empty text: no Authorization header
    headers  more headers of the request
    """
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
    """Return the sum of all samples of that name that have at least these labels."""
    return sum(
        value
        for (sample_name, sample_labels), value in samples.items()
        if sample_name == name and sample_labels >= frozenset(labels.items())
    )


def compute_increase(before: Samples, after: Samples, name: str, **labels: str) -> float:
    """Return the increase, from `before` to `after`, of sum_samples(name, **labels)."""
    return sum_samples(after, name, **labels) - sum_samples(before, name, **labels)


def buy_at_once(
    node: Node, lock: str, buyers: int = BUYERS, **fields: Any
) -> Counter[tuple[int, str]]:
    """Let buyers buy concurrently. Return the number of answers by status and outcome.

    lock    the strategy under which they buy
    fields  more fields of the POST /buy requests
    """

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
    """GET /metrics without exactly the METRICS_TOKEN is 401, and exposes no metric."""
    status, headers, text = request(node, "/metrics", token)
    assert status == 401
    assert headers["WWW-Authenticate"] == "Bearer"
    assert "oversold_" not in text


def test_metrics_cannot_be_posted(node: Node) -> None:
    status, _, _ = request(node, "/metrics", TOKEN, method="POST")
    assert status == 405


@rolled_back
def test_metrics_are_off_without_a_metrics_token() -> None:
    assert Client().get("/metrics").status_code == 404


def test_metrics_are_served_under_any_host_name(node: Node) -> None:
    """GET /metrics is answered even if the host is not in ALLOWED_HOSTS.

    In a cluster Prometheus requests a node by its IP address.
    """
    status, headers, _ = request(node, "/metrics", TOKEN, Host="10.1.2.3:8000")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert not re.search("[0-9]", headers.get("Server", "")), "no version"


# --- counters -----------------------------------------------------------------------------------


def test_counters_equal_the_answers_of_a_rush(node: Node) -> None:
    """The counters of GET /metrics equal the answers of a rush: 60 buyers want 20 units at once.

    Each of the two workers reports the sums over both workers.
    """
    node.restock(STOCK)
    baseline = read_samples(node)
    answers = buy_at_once(node, "redis")
    assert answers == {(201, "sold"): STOCK, (409, "sold_out"): BUYERS - STOCK}
    invalid_answers = buy_at_once(node, "no-such-lock", buyers=3)
    assert invalid_answers == {(400, "error"): 3}
    for _ in range(4):  # repeated, so that probably each of the two workers answers at least once
        increase = partial(compute_increase, baseline, read_samples(node))
        assert increase("oversold_purchases_total") == BUYERS + 3
        assert increase("oversold_purchases_total", lock="redis", outcome="sold") == STOCK
        assert (
            increase("oversold_purchases_total", lock="redis", outcome="sold_out") == BUYERS - STOCK
        )
        assert increase("oversold_purchases_total", lock="invalid", outcome="error") == 3
        for status, count in (("201", STOCK), ("409", BUYERS - STOCK), ("400", 3)):
            assert increase("oversold_http_requests_total", route="/buy", status=status) == count
        assert increase("oversold_http_request_seconds_count", route="/buy") == BUYERS + 3
        # A buyer acquires the lock before it finds that the product is sold out. So even the
        # sold-out buyers have waited for the lock, held it and released it.
        for name in ("wait_seconds_count", "held_seconds_count", "releases_total"):
            assert increase(f"oversold_lock_{name}", lock="redis") == BUYERS, name
        assert increase("oversold_lock_releases_total", outcome="released") == BUYERS
        assert increase("oversold_lock_lost_total") == 0
        waited_seconds = increase("oversold_lock_wait_seconds_sum", lock="redis")
        assert 0 < waited_seconds <= increase("oversold_http_request_seconds_sum", route="/buy")


def test_each_worker_writes_its_own_counters(node: Node) -> None:
    """Each worker has separate files. Their names contain the process id of the worker."""
    worker_pids = {process.pid for process in node.find_processes()[1:]}
    assert len(worker_pids) == 2

    def check_counter_files_or_buy_again() -> bool:
        """Return whether both workers have a file of counters. If not, send more purchases."""
        files = find_counter_folder(node).glob("counter_*.db")
        pids_in_names = {int(file.stem.rpartition("_")[2]) for file in files}
        if pids_in_names == worker_pids:
            return True
        buy_at_once(node, "redis")  # so far, one worker may have accepted every connection
        return False

    eventually(check_counter_files_or_buy_again, what="both workers have files of counters")


def test_values_from_requests_do_not_become_labels(node: Node) -> None:
    """Names, paths and methods that a client invents do not appear as labels of the metrics.

    If they did, a client could fill the memory of the nodes and of Prometheus.
    """
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
    """Renewals of a lease are counted, and so is its loss.

    The buyer holds the lock for 2 s. The lease lasts only 1 s (SHOP_LOCK_TTL), so the watchdog
    renews it meanwhile. Then the test deletes the lock's key, and the watchdog notices the loss.
    """
    node.restock(5)
    baseline = read_samples(node)
    with ThreadPoolExecutor(1) as pool:
        purchase = pool.submit(buy_at_once, node, "redis", 1, hold_ms=2_000)
        renewals = "oversold_lock_renewals_total"
        eventually(
            lambda: compute_increase(baseline, read_samples(node), renewals) > 0,
            what="the lease is renewed",
        )
        client = locks_client()
        keys: Any = client.keys("*redis:apple*")
        client.delete(*keys)
        losses = "oversold_lock_lost_total"
        eventually(
            lambda: (
                compute_increase(baseline, read_samples(node), losses, lock="redis", loss="gone")
                > 0
            ),
            what="the loss is counted",
        )
        # The write is accepted although the lock was lost. The database refuses a write only if
        # another buyer has claimed a higher fence meanwhile.
        assert purchase.result(10) == {(201, "sold"): 1}
    releases = "oversold_lock_releases_total"
    eventually(
        lambda: compute_increase(baseline, read_samples(node), releases, outcome="expired") > 0,
        what="the release of the expired lock is counted",
    )


def test_pools_of_all_workers_are_counted(node: Node) -> None:
    """The metrics count the connections in the database pools of both workers.

    Two buyers use the strategy `row-lock`: one holds the lock of the product's row, the other waits
    for it in PostgreSQL. So two connections are in use.
    """
    pool = "oversold_db_pool_connections"
    eventually(
        lambda: sum_samples(read_samples(node), pool) == CONNECTIONS_OF_BOTH_POOLS,
        what="both pools are counted",
    )
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
    """A buyer whose unit is sold gets the answer, even if the metrics cannot count the purchase.

    For example, /dev/shm, where the counters are stored, may be full.
    """
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
    """GET /sales/<sale> has no strategy, unlike POST /buy, but is counted without an error."""
    settings.METRICS_TOKEN = TOKEN
    assert Client().get("/sales/999999999").status_code == 404
    assert "was not counted" not in caplog.text


# --- workers come and go ------------------------------------------------------------------------


def find_counter_folder(node: Node) -> Path:
    """Return the folder in which the workers store their counters.

    Wait until the first worker has opened a file in this folder.
    """

    def list_open_counters() -> list[Path]:
        """Return the files of counters that the first worker has open."""
        _, worker, *_ = node.find_processes()  # the first process is the master
        paths = [Path(file.path) for file in worker.open_files()]
        return [path for path in paths if path.suffix == ".db"]

    eventually(list_open_counters, what="the worker has opened its counters")
    (folder,) = {path.parent for path in list_open_counters()}
    return folder


def test_killed_worker_loses_its_gauges_and_keeps_its_counts(node: Node) -> None:
    """The metrics no longer show the connection pool of a killed worker, but still its purchases.

    gunicorn's log line about the killed worker is JSON, the node's LOG_FORMAT.
    """
    node.restock(3)
    buy_at_once(node, "redis", buyers=5)
    baseline = read_samples(node)
    _, killed_worker, *_ = node.find_processes()  # the first process is the master
    old_pids = {process.pid for process in node.find_processes()}
    folder = find_counter_folder(node)

    def find_gauge_files(pid: int) -> list[Path]:
        """Return the files with a worker's gauges, such as the connections in its pool."""
        return list(folder.glob(f"gauge_live*_{pid}.db"))

    assert find_gauge_files(killed_worker.pid)
    os.kill(killed_worker.pid, signal.SIGKILL)

    def find_new_pids() -> set[int]:
        return {process.pid for process in node.find_processes()} - old_pids

    eventually(find_new_pids, what="a new worker has replaced the killed worker")
    (new_pid,) = find_new_pids()
    eventually(lambda: find_gauge_files(new_pid), what="the new worker shows its pool")
    assert not find_gauge_files(killed_worker.pid)
    pool = "oversold_db_pool_connections"
    eventually(
        lambda: sum_samples(read_samples(node), pool) == CONNECTIONS_OF_BOTH_POOLS,
        what="only the pools of the two running workers are counted",
    )
    purchases = "oversold_purchases_total"
    assert sum_samples(read_samples(node), purchases) == sum_samples(baseline, purchases)
    lines = [json.loads(line) for line in node.log.read_text().splitlines()]
    assert "gunicorn.error" in {line["logger"] for line in lines}


def test_counter_folder_is_private_and_removed_with_the_node(node: Node) -> None:
    """A node deletes its folder of counters when it stops.

    After a kill the folder remains. The next node at the same address empties the folder.

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
