"""Plain Locust, from its own command line, against a running shop."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, expect

from loadtest.judge.evidence import EVIDENCE
from loadtest.judge.verdict import EXIT_CODES
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import ROOT, Stack
from servers.loopback import free_port
from servers.process import ServerProcess


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
    assert "OVERSOLD [none]: 200 orders for 100 units" in done.stdout
    run = json.loads(result.read_text())
    assert run["in_flight"] == 200
    no_failure = r"/buy \[none\] +200 +0\(0\.00%\)"
    assert re.search(no_failure, done.stderr), done.stderr


def test_a_lock_sells_the_stock_and_exits_with_0(stack: Stack) -> None:
    done = locust(stack, "--lock", "token", "--stock", "30", "-u", "60")
    assert done.returncode == 0, done.stderr
    assert "EXACT [token]: 30 orders for 30 units, 0 left on the shelf" in done.stdout
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
    assert "'10000000' is not a whole number from 0 to 5000" in done.stderr


@pytest.fixture(scope="module")
def web_ui(stack: Stack) -> Iterator[str]:
    """Locust's web UI on this stack."""
    url, log = f"http://127.0.0.1:{free_port()}", Path(tempfile.mkdtemp()) / "log"
    process = ServerProcess("Locust", log)
    environment = {**os.environ, "SHOP_RESTOCK_TOKEN": stack.token}
    environment["LOCUST_ALLOWED_HOSTS"] = "locust-ui, demo.example"
    port = url.rpartition(":")[2]
    command = [sys.executable, "-m", "locust", "--host", stack.nodes[0].url, "--web-port", port]
    process.start(command, folder=ROOT, environment=environment)
    try:
        process.wait_until(lambda: [urlopen(url, timeout=5).close()], timeout=30)
        yield url
    finally:
        process.stop(2)
        shutil.rmtree(log.parent)


def test_the_web_ui_has_every_lock_in_a_drop_down_no_path_and_no_token(
    stack: Stack, web_ui: str
) -> None:
    for path in ("/", "/logs", "/stats/requests", "/stats/report", "/tasks"):
        with urlopen(web_ui + path, timeout=10) as page:
            html = page.read().decode()
        assert stack.token not in html
        if path == "/":
            names = json.dumps([one["name"] for one in stack.shop().strategies()])
            assert f'"choices": {names}' in html
            (options,) = re.findall(r'"extra_options": (\{.*?\}\})', html)
            assert sorted(json.loads(options)) == [
                "deadline",
                "hold_ms",
                "lock",
                "product",
                "stock",
            ]


def test_a_rush_is_started_with_locusts_own_form(web_ui: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(web_ui)
    page.get_by_label("Number of users").fill("10")
    page.get_by_label("Ramp up").fill("100")
    page.get_by_role("button", name="Custom parameters").click()
    page.get_by_label("Stock (").fill("4")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("button", name="New")).to_be_visible(timeout=30_000)
    page.goto(web_ui)
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_text("OVERSOLD [none]: 10 orders for 4 units").first).to_be_visible()
    page.close()


def ask(web_ui: str, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", int(web_ui.rpartition(":")[2]), timeout=10)
    with closing(connection):
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, body, {**form, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 200) for name in ("127.0.0.1:8089", "localhost", "LOCALHOST:1", "[::1]:8089")),
        *((name, 200) for name in ("locust-ui:8089", "demo.example")),
        *((name, 403) for name in ("evil.test:8089", "127.0.0.1.evil.test", "0.0.0.0:8089")),
        *((name, 403) for name in ("evil@127.0.0.1", "127.0.0.1:8089@evil.test")),
    ],
)
def test_the_web_ui_is_opened_under_names_that_are_allowed(
    web_ui: str, host: str, status: int
) -> None:
    found, said = ask(web_ui, "GET", "/", Host=host)
    assert (found, "LOCUST_ALLOWED_HOSTS" in said) == (status, status == 403)


@pytest.mark.parametrize(
    "field",
    [
        *("result", "history", "target", "nodes", "restock_token", "i_may_load", "csv_prefix"),
        *("html_file", "user_classes", "locustfile", "headless"),
    ],
)
def test_a_form_sets_what_a_rush_is_and_nothing_else(web_ui: str, field: str) -> None:
    for path in ("/swarm", "/stop"):
        status, said = ask(web_ui, "POST", path, urlencode({"user_count": "1", field: "x"}))
        assert (status, f"{field} is set on Locust's command line only" in said) == (403, True)


def test_a_form_names_no_other_host_and_no_class_of_users(web_ui: str) -> None:
    form = urlencode({"user_count": "1", "spawn_rate": "1", "host": "http://127.0.0.1:9"})
    assert ask(web_ui, "POST", "/swarm", form)[0] == 403
    assert ask(web_ui, "POST", "/user", "{}")[0] == 403


def test_another_page_is_refused_and_a_link_to_locust_opens_it(web_ui: str) -> None:
    own = web_ui.replace("http://", "")
    for headers in (
        {"Origin": "http://evil.test"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "image"},
    ):
        assert ask(web_ui, "GET", "/stats/requests", Host=own, **headers)[0] == 403, headers
        assert ask(web_ui, "POST", "/stop", Host=own, **headers)[0] == 403, headers
    link = {"Host": own, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    assert ask(web_ui, "GET", "/", **link)[0] == 200
    assert ask(web_ui, "GET", "/stop", **link)[0] == 403
    assert ask(web_ui, "POST", "/stop", Host=own, Origin=web_ui)[0] == 200


def test_the_judge_knows_of_every_strategy_whether_it_locks(stack: Stack) -> None:
    locks = {"redis", "redlock", "zookeeper", "process"}
    assert {name: evidence.locked for name, evidence in EVIDENCE.items()} == {
        one["name"]: one["backend"] in locks and not one["reserves"]
        for one in stack.shop().strategies()
    }
