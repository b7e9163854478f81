"""Plain Locust, started by its own command, against a running shop."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, expect

from loadtest.commands.rushes import Setting
from loadtest.commands.serve import serving
from loadtest.stack.stack import ROOT, Stack
from servers.loopback import free_port

#: The origin of Locust's page where a browser reaches it through a forwarder.
FORWARDED = "https://demo-8089.app.example"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Stack, str]]:
    """Start two nodes with two workers each, with Locust's web UI."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as log:
        patch.setenv("LOCUST_ALLOWED_HOSTS", "locust-ui, demo.example")
        patch.setenv("CSRF_TRUSTED_ORIGINS", f"{FORWARDED}, https://*.pages.example")
        with serving(Setting(), log=log) as (stack, locust, _):
            yield stack, locust


@pytest.fixture(scope="module")
def stack(served: tuple[Stack, str]) -> Stack:
    return served[0]


@pytest.fixture(scope="module")
def web_ui(served: tuple[Stack, str]) -> str:
    return served[1]


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )


def locust(stack: Stack, *options: str) -> subprocess.CompletedProcess[str]:
    words = ("--headless", "--host", stack.nodes[0].url, *options)
    return python("locust", *words, SHOP_RESTOCK_TOKEN=stack.token)


def test_no_lock_oversells_and_exits_with_3(stack: Stack, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    nodes = ("--nodes", stack.nodes[1].url)
    done = locust(stack, "--lock", "none", *nodes, "--result", str(result))

    assert done.returncode == 3, done.stderr
    assert "OVERSOLD [none]: 200 orders for 100 units" in done.stdout
    run = json.loads(result.read_text())
    assert run["in_flight"] > 150, "some may be answered before the last one has asked"
    no_failure = r"/buy \[none\] +200 +0\(0\.00%\)"
    assert re.search(no_failure, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert "very high" not in done.stderr


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("--lock", "nonsense"), 2, ["invalid choice: 'nonsense'", "redis"]),
        (("--restock-token", "wrong"), 6, ["SHOP_RESTOCK_TOKEN"]),
        (("--host", "http://127.0.0.1:9"), 6, ["no shop answers at http://127.0.0.1:9", "serve"]),
        (("--result", str(ROOT)), 6, ["--result cannot be written", str(ROOT), "UNKNOWN [none]"]),
    ],
)
def test_impossible_setting_gives_advice_and_no_verdict(
    stack: Stack, options: Sequence[str], status: int, said: Sequence[str]
) -> None:
    done = locust(stack, "-u", "5", *options)
    assert done.returncode == status, done.stderr
    assert [words for words in said if words not in done.stderr] == []


def test_shop_of_locust_host_lists_the_locks(stack: Stack) -> None:
    words = ("--headless", "-u", "5", "--lock", "nonsense")
    done = python("locust", *words, LOCUST_HOST=stack.nodes[0].url)
    assert done.returncode == 2, done.stderr
    assert "invalid choice: 'nonsense'" in done.stderr


def test_interrupt_before_the_rush_exits_with_6(stack: Stack) -> None:
    """The signal goes to the whole process group, as Ctrl-C does while the master waits for
    workers."""
    words = ("--headless", "--master", "--master-bind-port", str(free_port()))
    process = subprocess.Popen(
        [sys.executable, "-m", "locust", *words, "--expect-workers", "1", "-u", "5"],
        cwd=ROOT,
        env={**os.environ, "SHOP_RESTOCK_TOKEN": stack.token},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    with process:
        try:
            for line in process.stderr:
                if "Waiting for workers to be ready" in line:
                    break
            os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert "Traceback" not in errors
    assert "UNKNOWN: interrupted before there was a rush" in errors
    assert process.returncode == 6, errors


def test_compose_contrast_reads_its_token_from_a_file(stack: Stack, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{stack.token}\n")
    shop = {"LOCUST_HOST": stack.nodes[0].url, "SHOP_RESTOCK_TOKEN_FILE": str(token)}
    done = python("loadtest.commands.contrast", **shop)
    assert done.returncode == 0, done.stderr
    verdicts = re.findall(r"^(\w+) +. (OVERSOLD|EXACT)", done.stdout, re.MULTILINE)
    assert verdicts == [("none", "OVERSOLD"), ("token", "EXACT"), ("redis", "EXACT")]


def test_web_ui_has_every_lock_in_a_drop_down_no_path_and_no_token(
    stack: Stack, web_ui: str
) -> None:
    for path in ("/", "/logs", "/stats/requests", "/stats/report", "/tasks"):
        with urlopen(web_ui + path, timeout=10) as page:
            html = page.read().decode()
        assert stack.token not in html
        if path == "/":
            names = json.dumps([strategy["name"] for strategy in stack.shop().strategies()])
            assert f'"choices": {names}' in html
            (options,) = re.findall(r'"extra_options": (\{.*?\}\})', html)
            assert set(json.loads(options)) == {"deadline", "hold_ms", "lock", "product", "stock"}


def test_rush_is_started_with_locusts_own_form(web_ui: str, browser: Browser) -> None:
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
    # On a busy machine a late buyer finds the shelf empty.
    verdict = re.compile(r"(OVERSOLD|EXACT) \[none\]: \d+ orders for 4 units")
    expect(page.get_by_text(verdict).first).to_be_visible()
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
        ("127.0.0.1:8089", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:8089", 200),
        ("locust-ui:8089", 200),
        ("demo.example", 200),
        ("evil.test:8089", 403),
        ("127.0.0.1.evil.test", 403),
        ("0.0.0.0:8089", 403),
        ("evil@127.0.0.1", 403),
        ("127.0.0.1:8089@evil.test", 403),
    ],
)
def test_web_ui_is_opened_under_names_that_are_allowed(web_ui: str, host: str, status: int) -> None:
    status_answered, page_text = ask(web_ui, "GET", "/", Host=host)
    assert (status_answered, "LOCUST_ALLOWED_HOSTS" in page_text) == (status, status == 403)


@pytest.mark.parametrize(
    "field",
    [
        "result",
        "history",
        "target",
        "nodes",
        "restock_token",
        "i_may_load",
        "rush",
        "csv_prefix",
        "html_file",
        "user_classes",
        "locustfile",
        "headless",
        "host",
    ],
)
def test_form_sets_only_the_options_of_a_rush(web_ui: str, field: str) -> None:
    for path in ("/swarm", "/stop"):
        status, answer = ask(web_ui, "POST", path, urlencode({"user_count": "1", field: "x"}))
        assert (status, f"{field} is set on Locust's command line only" in answer) == (403, True)
    assert ask(web_ui, "POST", "/user", "{}")[0] == 403


def test_null_origin_is_refused_and_a_link_opens_the_page(web_ui: str) -> None:
    """test_attacks_from_the_web.py covers neither sandboxed pages nor links."""
    own = {"Host": web_ui.replace("http://", "")}
    assert ask(web_ui, "GET", "/stats/requests", **own, Origin="null")[0] == 403
    link = {**own, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    assert ask(web_ui, "GET", "/", **link)[0] == 200
    assert ask(web_ui, "GET", "/stop", **link)[0] == 403
    assert ask(web_ui, "POST", "/stop", **own, Origin=web_ui)[0] == 200


@pytest.mark.parametrize(
    ("origin", "site", "status"),
    [
        (FORWARDED, "same-origin", 200),
        (FORWARDED, "", 200),
        ("https://a.pages.example", "same-origin", 200),
        (FORWARDED, "cross-site", 403),
        (FORWARDED, "same-site", 403),
        ("http://demo-8089.app.example", "same-origin", 403),
        (f"{FORWARDED}.evil.test", "same-origin", 403),
        ("https://evilpages.example", "same-origin", 403),
        ("null", "same-origin", 403),
    ],
)
def test_forwarded_page_of_locust_sends_its_form_once_trusted(
    web_ui: str, origin: str, site: str, status: int
) -> None:
    """A port forwarder passes the browser's Origin on, and asks for localhost."""
    headers = {"Host": "localhost:8089", "Origin": origin}
    headers |= {"Sec-Fetch-Site": site} if site else {}
    status_answered, answer = ask(web_ui, "POST", "/stop", **headers)
    assert status_answered == status
    if status == 403 and site == "same-origin":
        assert (f"CSRF_TRUSTED_ORIGINS={origin[:64]}" in answer) == (origin != "null")
