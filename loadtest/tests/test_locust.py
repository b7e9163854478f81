"""Plain Locust, from its own command line, against a running shop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from loadtest.judge.evidence import EVIDENCE
from loadtest.judge.verdict import EXIT_CODES
from loadtest.rush.locust_process import Buyers
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import ROOT, Stack, StackError


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with (
        tempfile.TemporaryFile() as log,
        Stack(nodes=2, workers=2, threads=100, log=log) as running,
    ):
        yield running


def locust(
    stack: Stack, *options: str, token: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SHOP_RESTOCK_TOKEN": token or stack.token}
    return subprocess.run(
        [sys.executable, "-m", "locust", "--headless", "--host", stack.nodes[0].url, *options],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )


def test_no_lock_oversells_and_exits_with_3(stack: Stack, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    nodes = ("--nodes", stack.nodes[1].url)
    done = locust(stack, "--lock", "none", *nodes, "--result", str(result))

    assert done.returncode == 3, done.stderr
    assert "OVERSOLD [none]: 200 orders for 100 units" in done.stderr
    run = json.loads(result.read_text())
    assert run["in_flight"] == 200
    assert run["arrival_spread_ms"] < 250  # a sanity bound; the figure is measured elsewhere
    no_failure = r"/buy \[none\] +200 +0\(0\.00%\) +\| +\d+ +\d+ +(\d+)"
    slowest = re.search(no_failure, done.stderr)
    assert slowest, done.stderr
    waited_at_the_barrier = int(slowest[1]) - run["buy_ms"]["max"]
    assert waited_at_the_barrier <= 1, "Locust's own figures are of the shop"


def test_a_lock_sells_the_stock_and_exits_with_0(stack: Stack) -> None:
    done = locust(stack, "--lock", "token", "--stock", "30", "-u", "60")
    assert done.returncode == 0, done.stderr
    assert "EXACT [token]: 30 orders for 30 units, 0 left on the shelf" in done.stderr
    assert "Traceback" not in done.stderr
    assert "very high" not in done.stderr


def test_an_unknown_lock_is_refused_with_the_names_that_there_are(stack: Stack) -> None:
    done = locust(stack, "--lock", "nonsense")
    assert done.returncode == 2
    assert "invalid choice: 'nonsense'" in done.stderr
    assert "redis" in done.stderr


def test_a_wrong_token_says_what_to_do_and_is_no_verdict(stack: Stack) -> None:
    done = locust(stack, "--lock", "none", "-u", "5", token="wrong")
    assert done.returncode == 6
    assert "SHOP_RESTOCK_TOKEN" in done.stderr


def test_a_shop_that_is_not_there_says_how_to_start_one(stack: Stack) -> None:
    done = locust(stack, "--host", "http://127.0.0.1:9", "-u", "5")
    assert done.returncode == 6
    assert "no shop answers at http://127.0.0.1:9" in done.stderr
    assert "make serve" in done.stderr


def test_a_rush_that_its_time_limit_cuts_off_is_no_verdict(stack: Stack) -> None:
    slow = ("--lock", "row-lock", "--hold-ms", "300", "--product", "pear")
    done = locust(stack, *slow, "-u", "40", "--stock", "40", "-t", "3s")
    assert done.returncode == 6, done.stderr
    assert "UNKNOWN [row-lock]" in done.stderr
    assert "the rush was stopped: " in done.stderr


def test_a_rush_that_a_signal_cuts_off_is_no_verdict(stack: Stack) -> None:
    running = {}
    for what in (signal.SIGINT, signal.SIGTERM):
        slow = ("--lock", "row-lock", "--hold-ms", "300", "--product", what.name)
        command = [sys.executable, "-m", "locust", "--headless", "--host", stack.nodes[0].url]
        running[what] = subprocess.Popen(
            [*command, *slow, "-u", "40", "--stock", "40", "--only-summary"],
            cwd=ROOT,
            env={**os.environ, "SHOP_RESTOCK_TOKEN": stack.token},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    for what, process in running.items():
        wait_for_an_order(stack, what.name)
        process.send_signal(what)
    assert {what: process.wait(30) for what, process in running.items()} == dict.fromkeys(
        running, EXIT_CODES["unknown"]
    )


def wait_for_an_order(stack: Stack, product: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if stack.shop()._ask("GET", f"/sales/latest?product={product}")["orders"]:
                return
        except ShopUnreachable:  # there is no such sale yet
            pass
        time.sleep(0.05)
    raise AssertionError(f"nobody bought {product}")


def test_a_rush_that_was_stopped_sells_nothing_in_the_next_sale(stack: Stack) -> None:
    """Its purchases wait in the nodes for the lock, 0.3 s each, and go on after the stop."""
    with tempfile.TemporaryFile() as log, Buyers(stack, log=log) as buyers:
        buyers.wait_until_ready()
        crowd = {"user_count": 60, "spawn_rate": 400}
        buyers._begin(
            "/swarm",
            {**crowd, "lock": "redis", "stock": 60, "hold_ms": 300, "product": "plum"}
            | {"deadline": 60.0},
        )
        wait_for_an_order(stack, "plum")
        urlopen(buyers._request("/stop", b""), timeout=30).close()
        stopped = buyers._ask("/rush")
        after = [rush(buyers, lock=lock, product="plum") for lock in ("none", "version")]
    assert (stopped["verdict"], stopped["lock"]) == ("unknown", "redis")
    assert stopped["why"].startswith("the rush was stopped: ")
    assert [run["verdict"] for run in after] == ["oversold", "exact"]
    assert [run["violations"] for run in after][1] == []
    for run in after:
        keys = [order["key"] for order in stack.shop().orders(run["sale"])]
        assert all(key.startswith(run["attempts"]) for key in keys)


@pytest.mark.parametrize("option", ["--history", "--result"])
def test_a_file_that_cannot_be_written_is_named_and_the_run_ends_without_a_verdict(
    stack: Stack, tmp_path: Path, option: str
) -> None:
    done = locust(stack, "--lock", "token", "-u", "5", option, str(tmp_path))  # a folder
    assert done.returncode == 6, done.stderr
    assert f"{option} cannot be written" in done.stderr
    assert str(tmp_path) in done.stderr
    assert "UNKNOWN [token]" in done.stderr


def test_a_hold_out_of_bounds_is_refused_before_anything_begins(stack: Stack) -> None:
    done = locust(stack, "--hold-ms", "10000000")
    assert done.returncode == 2
    assert "'10000000' is not a whole number from 0 to 5001" in done.stderr


def test_the_web_ui_has_every_lock_in_a_drop_down_and_no_token(stack: Stack) -> None:
    with tempfile.TemporaryFile() as log, Buyers(stack, log=log) as buyers:
        buyers.wait_until_ready()
        with urlopen(buyers.url, timeout=10) as page:
            html = page.read().decode()
    names = json.dumps([one["name"] for one in stack.shop().strategies()])
    assert f'"choices": {names}' in html
    assert stack.token not in html


def test_the_web_ui_is_opened_under_the_names_that_are_allowed(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCUST_ALLOWED_HOSTS", "locust-ui, demo.example")
    with tempfile.TemporaryFile() as log, Buyers(stack, log=log) as buyers:
        buyers.wait_until_ready()
        for host, status in (("locust-ui:8089", 200), ("demo.example", 200), ("evil.test", 403)):
            connection = HTTPConnection("127.0.0.1", buyers.port, timeout=10)
            connection.request("GET", "/", headers={"Host": host})
            assert connection.getresponse().status == status, host
            connection.close()


def test_the_judge_knows_of_every_strategy_whether_it_locks(stack: Stack) -> None:
    locks = {"redis", "redlock", "zookeeper", "process"}
    assert {name: evidence.locked for name, evidence in EVIDENCE.items()} == {
        one["name"]: one["backend"] in locks and not one["reserves"]
        for one in stack.shop().strategies()
    }


def test_one_locust_serves_rush_after_rush(stack: Stack) -> None:
    with tempfile.TemporaryFile() as log, Buyers(stack, log=log) as buyers:
        runs = [rush(buyers, lock=lock) for lock in ("none", "token", "none")]
    assert [run["verdict"] for run in runs] == ["oversold", "exact", "oversold"]
    assert len({run["sale"] for run in runs}) == 3


def test_buyers_that_stayed_run_another_rush_with_other_values(stack: Stack) -> None:
    with tempfile.TemporaryFile() as log, Buyers(stack, log=log, stay=True) as buyers:
        first, second = (rush(buyers, lock=lock) for lock in ("none", "token"))
    assert (first["lock"], first["verdict"]) == ("none", "oversold")
    assert (second["lock"], second["verdict"]) == ("token", "exact")


def test_a_rush_out_of_bounds_is_refused_with_the_reason(stack: Stack) -> None:
    with (
        tempfile.NamedTemporaryFile() as log,
        Buyers(stack, log=log) as buyers,
        pytest.raises(StackError, match="hold_ms: '9999' is not a whole number from 0 to 5001"),
    ):
        buyers.rush(lock="none", buyers=5, stock=2, hold_ms=9999, product="apple", deadline=60)


def rush(buyers: Buyers, *, lock: str, product: str = "apple") -> dict[str, Any]:
    return buyers.rush(lock=lock, buyers=60, stock=20, hold_ms=0, product=product, deadline=60)
