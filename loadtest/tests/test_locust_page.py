"""Locust's web UI under make serve: its own page works as before, and shows no secret."""

from __future__ import annotations

import csv
import http.client
import io
import json
import tempfile
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from loadtest.commands.run import Setting
from loadtest.commands.serve import serving
from loadtest.rush.locust_process import Buyers
from loadtest.stack.stack import Stack
from loadtest.tests.browser import Watched

RUSH = {"lock": "redis", "stock": "5", "hold_ms": "0", "product": "apple", "deadline": "60"}
SWARM = {"user_count": "10", "spawn_rate": "100", **RUSH}
#: Every route of Locust and of ours that is read.
READ = (
    *("/", "/rush", "/runs", "/runs/state", "/verdicts/csv", "/logs", "/tasks", "/exceptions"),
    *("/exceptions/csv", "/stats/requests", "/stats/requests/csv", "/stats/failures/csv"),
    *("/stats/report", "/stats/report?download=1", "/worker-count"),
)
#: Milliseconds for a rush to end and to be shown.
RUSH_MS = 30_000


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Stack, Buyers]]:
    setting = Setting(buyers=10, nodes=1, workers=1)
    with tempfile.TemporaryFile() as log, serving(setting, log=log) as running:
        yield running


@pytest.fixture
def page(served: tuple[Stack, Buyers], browser: Browser, watched: Watched) -> Iterator[Page]:
    """Locust's page. At the end: the browser complained of nothing."""
    page = browser.new_page()
    watched.watch(page)
    page.goto(served[1].url)
    yield page
    page.close()
    assert watched.complaints == []


def open_the_form(page: Page) -> None:
    """It is on the page before the first rush, and behind a button after it."""
    users, new = page.get_by_label("Number of users"), page.get_by_role("button", name="New")
    expect(users.or_(new)).to_be_visible()
    if new.is_visible():
        new.click()
    page.get_by_role("button", name="Custom parameters").click()


def post(
    buyers: Buyers, path: str, form: dict[str, str], *, token: str | None = None
) -> tuple[int, dict[str, Any]]:
    """What a program is answered that sends a form."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = Request(buyers.url + path, urlencode(form).encode(), headers)
    try:
        with urlopen(request, timeout=30) as answer:
            return answer.status, dict(json.load(answer))
    except HTTPError as error:
        with error:
            return error.code, dict(json.load(error))


def number(buyers: Buyers) -> int:
    """How many rushes there were."""
    with urlopen(f"{buyers.url}/runs/state", timeout=30) as answer:
        return int(json.load(answer)["number"])


@pytest.mark.parametrize("time", ["first", "second"])
def test_a_rush_is_started_with_locusts_own_form(
    served: tuple[Stack, Buyers], page: Page, time: str
) -> None:
    before = number(served[1])
    open_the_form(page)
    page.get_by_label("Number of users").fill("10")
    page.get_by_label("Ramp up").fill("100")
    page.get_by_label("Stock (").fill("4")
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("tab", name="Verdicts").click(timeout=RUSH_MS)
    newest = page.locator("tbody tr").first
    expect(newest.locator("td").first).to_have_text(str(before + 1), timeout=RUSH_MS)
    expect(newest).to_contain_text("OVERSOLD")
    assert number(served[1]) == before + 1


def test_its_form_shows_what_a_rush_is_and_no_path_address_or_secret(page: Page) -> None:
    open_the_form(page)
    options = page.evaluate("Object.keys(window.templateArgs.extra_options)")
    assert sorted(options) == ["deadline", "hold_ms", "lock", "product", "stock"]


@pytest.mark.parametrize(
    ("label", "value", "said"),
    [
        ("Number of users", "20001", "user_count: '20001' is not a whole number from 1 to 20000"),
        ("Host", "http://127.0.0.1:9", "host is set on Locust's command line alone"),
    ],
)
def test_its_form_says_what_is_wrong_and_starts_nothing(
    served: tuple[Stack, Buyers], page: Page, label: str, value: str, said: str
) -> None:
    before = number(served[1])
    open_the_form(page)
    page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()
    assert number(served[1]) == before


def test_no_page_and_no_file_of_it_has_a_token(served: tuple[Stack, Buyers]) -> None:
    stack, buyers = served
    buyers.rush(lock="none", buyers=2, stock=5, hold_ms=0, product="apple", deadline=60)
    for path in READ:
        with urlopen(buyers.url + path, timeout=30) as answer:
            text = answer.read().decode()
        assert stack.token not in text, path
        assert buyers.token not in text, path
    for path in ("/", "/state", "/history"):
        with urlopen(stack.nodes[0].url + path, timeout=30) as answer:
            assert buyers.token not in answer.read().decode(), path


@pytest.mark.parametrize("path", ["/swarm", "/rush", "/stop", "/stats/reset", "/user"])
@pytest.mark.parametrize("token", [None, "", "wrong"])
def test_a_program_without_the_token_is_asked_to_send_it(
    served: tuple[Stack, Buyers], path: str, token: str | None
) -> None:
    before = number(served[1])
    status, body = post(served[1], path, SWARM, token=token)
    assert (status, "LOCUST_TOKEN" in body["message"]) == (403, True)
    assert number(served[1]) == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("user_count", "0"), ("spawn_rate", "0"), ("stock", "-1"), ("hold_ms", "5002")),
        *(("product", "$(id)"), ("deadline", "nan"), ("lock", "nonsense"), ("result", "/tmp/x")),
        *(("history", "/tmp/x"), ("restock_token", "x"), ("stay", "true"), ("nodes", "http://x")),
        *(
            ("host", "http://127.0.0.1:9"),
            ("run_time", "1s"),
            ("profile", "x"),
            ("csv_prefix", "x"),
        ),
    ],
)
def test_a_program_with_the_token_asks_for_a_rush_and_nothing_else(
    served: tuple[Stack, Buyers], field: str, value: str
) -> None:
    buyers, before = served[1], number(served[1])
    status, body = post(buyers, "/swarm", {**SWARM, field: value}, token=buyers.token)
    assert (status, field in body["message"]) == (400, True)
    assert number(buyers) == before


def test_the_classes_of_users_are_fixed(served: tuple[Stack, Buyers]) -> None:
    buyers = served[1]
    assert post(buyers, "/user", {"x": "y"}, token=buyers.token)[0] == 403


def test_post_rush_asks_for_the_token_of_locusts_own_page_too(page: Page, watched: Watched) -> None:
    watched.refusals.add(403)
    status = page.evaluate("fetch('/rush', {method: 'POST', body: ''}).then(a => a.status)")
    assert status == 403


def test_another_rush_is_refused_where_no_buyers_stayed(served: tuple[Stack, Buyers]) -> None:
    buyers, before = served[1], number(served[1])
    buyers.rush(lock="none", buyers=2, stock=5, hold_ms=0, product="apple", deadline=60)
    status, body = post(buyers, "/rush", RUSH, token=buyers.token)
    assert (status, "--stay" in body["message"]) == (409, True)
    assert number(buyers) == before + 1


def test_locust_has_a_tab_with_the_verdicts_and_their_csv(
    served: tuple[Stack, Buyers], browser: Browser
) -> None:
    _, buyers = served
    run = buyers.rush(lock="none", buyers=20, stock=10, hold_ms=0, product="apple", deadline=60)
    page = browser.new_page()
    page.goto(f"{buyers.url}/?tab=verdicts")
    page.get_by_role("tab", name="Verdicts").click()
    newest = page.locator("tbody tr").first
    for cell in ("none", "OVERSOLD", str(run["orders"])):
        expect(newest.get_by_role("cell", name=cell, exact=True).first).to_be_visible()
    page.get_by_role("tab", name="Download Data").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download verdicts CSV").click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert (rows[-1]["lock"], rows[-1]["verdict"]) == ("none", "OVERSOLD")
    assert rows[-1]["orders"] == str(run["orders"])
    page.close()


def test_a_look_costs_the_shop_at_most_5_ms_of_cpu(served: tuple[Stack, Buyers]) -> None:
    """Of the whole node, Locust's state included."""
    node = served[0].nodes[0]
    assert node.process is not None
    master = psutil.Process(node.process.pid)
    processes = [master, *master.children(recursive=True)]

    def spent() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    page = http.client.HTTPConnection("127.0.0.1", node.port, timeout=10)  # kept, as a browser does

    def look(times: int) -> float:
        """Milliseconds of CPU for each."""
        before = spent()
        for _ in range(times):
            page.request("GET", "/state?product=apple")
            assert page.getresponse().read()
        return (spent() - before) / times * 1000

    look(20)  # each worker's first one
    each = min(look(60) for _ in range(3))  # others on the machine only ever add to it
    page.close()
    print(f"{each:.2f} ms of CPU")
    assert 0 < each <= 5
