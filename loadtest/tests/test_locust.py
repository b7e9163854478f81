"""Locust, started by its own command `locust`, against a running shop.

A rush sends many buyers to one sale at the same moment. The exit code of Locust is the verdict on
the rush: 0 for `exact`, 3 for `oversold`, 6 for `unknown`.
"""

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

from loadtest.commands.rushes import RushOptions
from loadtest.commands.serve import serve_shop
from loadtest.stack.stack import ROOT, Stack
from servers.loopback import find_free_port
from servers.tests.interrupts import stop_ignoring_sigint

#: The origin of Locust's web UI in a browser that reaches it through a port forwarder.
FORWARDED_ORIGIN = "https://demo-8089.app.example"


@pytest.fixture(scope="module")
def stack_and_web_ui() -> Iterator[tuple[Stack, str]]:
    """Start the shop, its servers and Locust's web UI. Yield the stack and the URL of that UI."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as log:
        patch.setenv("LOCUST_ALLOWED_HOSTS", "locust-ui, demo.example")
        patch.setenv("CSRF_TRUSTED_ORIGINS", f"{FORWARDED_ORIGIN}, https://*.pages.example")
        with serve_shop(RushOptions(), log=log) as (stack, web_ui, _):
            yield stack, web_ui


@pytest.fixture(scope="module")
def stack(stack_and_web_ui: tuple[Stack, str]) -> Stack:
    return stack_and_web_ui[0]


@pytest.fixture(scope="module")
def web_ui(stack_and_web_ui: tuple[Stack, str]) -> str:
    return stack_and_web_ui[1]


def run_module(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m` with these arguments and additional environment variables."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )


def run_locust(stack: Stack, *options: str) -> subprocess.CompletedProcess[str]:
    """Run one rush on the first node with the command `locust` and these options."""
    arguments = ("--headless", "--host", stack.nodes[0].url, *options)
    return run_module("locust", *arguments, SHOP_RESTOCK_TOKEN=stack.token)


def test_no_lock_oversells_and_exits_with_3(stack: Stack, tmp_path: Path) -> None:
    """A rush of 200 buyers for 100 units, the defaults, on two nodes makes 200 orders."""
    result_file = tmp_path / "result.json"
    options = ("--lock", "none", "--nodes", stack.nodes[1].url, "--result", str(result_file))
    process = run_locust(stack, *options)

    assert process.returncode == 3, process.stderr
    assert "OVERSOLD [none]: 200 orders for 100 units" in process.stdout
    run = json.loads(result_file.read_text())
    assert run["in_flight"] > 150, "most of the 200 buyers wait for an answer at the same time"
    no_failure = r"/buy \[none\] +200 +0\(0\.00%\)"
    assert re.search(no_failure, process.stderr), process.stderr
    assert "Traceback" not in process.stderr
    assert "very high" not in process.stderr, "Locust warned that the processor is too busy"


@pytest.mark.parametrize(
    ("options", "exit_code", "messages"),
    [
        (("--lock", "nonsense"), 2, ["invalid choice: 'nonsense'", "redis"]),
        (("--restock-token", "wrong"), 6, ["SHOP_RESTOCK_TOKEN"]),
        (("--host", "http://127.0.0.1:9"), 6, ["no shop answers at http://127.0.0.1:9", "serve"]),
        (("--result", str(ROOT)), 6, ["--result cannot be written", str(ROOT), "UNKNOWN [none]"]),
    ],
)
def test_impossible_setting_gives_advice(
    stack: Stack, options: Sequence[str], exit_code: int, messages: Sequence[str]
) -> None:
    """An unknown strategy ends Locust with code 2, as argparse does. Other failures have code 6."""
    process = run_locust(stack, "-u", "5", *options)
    assert process.returncode == exit_code, process.stderr
    for message in messages:
        assert message in process.stderr


def test_shop_of_locust_host_lists_the_locks(stack: Stack) -> None:
    """The choices of the option --lock are the strategies of the shop.

    Without the option --host, Locust uses the shop whose address is in the variable LOCUST_HOST.
    """
    arguments = ("--headless", "-u", "5", "--lock", "nonsense")
    process = run_module("locust", *arguments, LOCUST_HOST=stack.nodes[0].url)
    assert process.returncode == 2, process.stderr
    assert "invalid choice: 'nonsense'" in process.stderr


def test_interrupt_before_the_rush_exits_with_6(stack: Stack) -> None:
    """Locust's master is interrupted while it waits for its worker.

    The whole process group of the master gets SIGINT, as after Ctrl-C in a terminal.
    """
    arguments = ("--headless", "--master", "--master-bind-port", str(find_free_port()))
    process = subprocess.Popen(
        [sys.executable, "-m", "locust", *arguments, "--expect-workers", "1", "-u", "5"],
        cwd=ROOT,
        env={**os.environ, "SHOP_RESTOCK_TOKEN": stack.token},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=stop_ignoring_sigint,
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
    """The command `contrast`, which the Compose file starts, runs a rush under three strategies.

    It reads the restock token, with which sales are opened, from a file.
    """
    token_file = tmp_path / "token"
    token_file.write_text(f"{stack.token}\n")
    environment = {"LOCUST_HOST": stack.nodes[0].url, "SHOP_RESTOCK_TOKEN_FILE": str(token_file)}
    process = run_module("loadtest.commands.contrast", **environment)
    assert process.returncode == 0, process.stderr
    verdicts = re.findall(r"^(\w+) +. (OVERSOLD|EXACT)", process.stdout, re.MULTILINE)
    assert verdicts == [("none", "OVERSOLD"), ("token", "EXACT"), ("redis", "EXACT")]


def test_web_ui_offers_every_lock_and_shows_no_token(stack: Stack, web_ui: str) -> None:
    """No page of Locust's web UI has the restock token, with which sales are opened.

    The form has only the options below. None of them is the path of a file or a host.
    """
    for path in ("/", "/logs", "/stats/requests", "/stats/report", "/tasks"):
        with urlopen(web_ui + path, timeout=10) as page:
            html = page.read().decode()
        assert stack.token not in html
        if path == "/":
            names = json.dumps([strategy["name"] for strategy in stack.shop().strategies()])
            assert f'"choices": {names}' in html
            (options,) = re.findall(r'"extra_options": (\{.*?\}\})', html)
            assert set(json.loads(options)) == {"deadline", "hold_ms", "lock", "product", "stock"}


def test_form_of_the_web_ui_starts_a_rush(web_ui: str, browser: Browser) -> None:
    """The verdict on the rush appears in the logs that Locust's web UI shows."""
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
    # On a busy machine the last buyers may come too late to oversell.
    verdict = re.compile(r"(OVERSOLD|EXACT) \[none\]: \d+ orders for 4 units")
    expect(page.get_by_text(verdict).first).to_be_visible()
    page.close()


def send_request(
    web_ui: str, method: str, path: str, body: str = "", **headers: str
) -> tuple[int, str]:
    """Send a request to Locust's web UI. Return the status and the text of the response.

    body  the fields of a form, URL-encoded
    """
    connection = HTTPConnection("127.0.0.1", int(web_ui.rpartition(":")[2]), timeout=10)
    with closing(connection):
        form_type = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, body, {**form_type, **headers})
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
def test_web_ui_is_opened_under_allowed_names_only(web_ui: str, host: str, status: int) -> None:
    """A request is refused if its header Host is neither this machine nor an allowed name.

    The allowed names are in the variable LOCUST_ALLOWED_HOSTS, which the refusal mentions.
    """
    response_status, page_text = send_request(web_ui, "GET", "/", Host=host)
    assert response_status == status
    assert ("LOCUST_ALLOWED_HOSTS" in page_text) == (status == 403)


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
def test_form_with_an_option_of_the_command_line_is_refused(web_ui: str, field: str) -> None:
    """The web UI refuses forms with options that may only be set on the command line.

    Otherwise a page of another site could set them by sending a form. The path /user, which changes
    Locust's user classes, is always refused.
    """
    for path in ("/swarm", "/stop"):
        form = urlencode({"user_count": "1", field: "x"})
        status, page_text = send_request(web_ui, "POST", path, form)
        assert status == 403
        assert f"{field} is set on Locust's command line only" in page_text
    status, _ = send_request(web_ui, "POST", "/user", "{}")
    assert status == 403


def test_null_origin_is_refused_but_a_link_may_open_the_page(web_ui: str) -> None:
    """A sandboxed page has the origin `null`. It must not read anything from Locust's web UI.

    A link on another site may open the page of the web UI, but must not stop a rush.
    """
    host = {"Host": web_ui.removeprefix("http://")}
    link = {**host, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    for method, path, headers, expected_status in (
        ("GET", "/stats/requests", {**host, "Origin": "null"}, 403),
        ("GET", "/", link, 200),
        ("GET", "/stop", link, 403),
        ("POST", "/stop", {**host, "Origin": web_ui}, 200),
    ):
        status, _ = send_request(web_ui, method, path, **headers)
        assert status == expected_status, (method, path)


@pytest.mark.parametrize(
    ("origin", "fetch_site", "status"),
    [
        (FORWARDED_ORIGIN, "same-origin", 200),
        (FORWARDED_ORIGIN, "", 200),
        ("https://a.pages.example", "same-origin", 200),
        (FORWARDED_ORIGIN, "cross-site", 403),
        (FORWARDED_ORIGIN, "same-site", 403),
        ("http://demo-8089.app.example", "same-origin", 403),
        (f"{FORWARDED_ORIGIN}.evil.test", "same-origin", 403),
        ("https://evilpages.example", "same-origin", 403),
        ("null", "same-origin", 403),
    ],
)
def test_form_is_accepted_from_a_trusted_forwarded_page_only(
    web_ui: str, origin: str, fetch_site: str, status: int
) -> None:
    """A form is accepted only if its header Origin is in the setting CSRF_TRUSTED_ORIGINS.

    A port forwarder does not change the browser's Origin, and sets the Host to localhost. So the
    Origin differs from the Host. The refusal says which value of the setting would accept the form.
    """
    headers = {"Host": "localhost:8089", "Origin": origin}
    if fetch_site:
        headers["Sec-Fetch-Site"] = fetch_site
    response_status, page_text = send_request(web_ui, "POST", "/stop", **headers)
    assert response_status == status
    if status == 403 and fetch_site == "same-origin":
        can_be_trusted = origin != "null"
        assert (f"CSRF_TRUSTED_ORIGINS={origin}" in page_text) == can_be_trusted
