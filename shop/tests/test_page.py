"""The page and what it asks for; in a browser it is tested in loadtest/tests/test_page.py."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from shop.strategies import STRATEGIES
from shop.tests.outage import Outage
from shop.tests.till import buy, committed, open_sale, rolled_back

RUSH = {"lock": "none", "buyers": "20", "stock": "10", "hold_ms": "0"}


class Locust:
    """Answers as Locust does, and remembers what it was asked to start."""

    def __init__(self) -> None:
        self.state, self.number = "ready", 0
        self.runs: list[dict[str, Any]] = []
        self.started: list[dict[str, str]] = []
        self.bearers: set[str | None] = set()
        self.refuses: tuple[int, str] | None = None
        locust = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = {"state": locust.state, "number": locust.number}
                self.answer({"runs": locust.runs} if self.path == "/runs" else answer)

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                if locust.refuses is not None:
                    status, message = locust.refuses
                    self.answer({"success": False, "message": message}, status)
                    return
                locust.started.append({name: value for name, (value,) in form.items()})
                self.answer({"success": True})

            def answer(self, body: dict[str, Any], status: int = 200) -> None:
                locust.bearers.add(self.headers["Authorization"])
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))


@pytest.fixture
def locust(settings: Any) -> Iterator[Locust]:
    there = Locust()
    there.thread.start()
    settings.LOCUST_URL = f"http://127.0.0.1:{there.server.server_port}"
    yield there
    there.server.shutdown()
    there.thread.join()
    there.server.server_close()


def test_the_page_offers_every_lock_that_can_be_had_with_its_sentence(settings: Any) -> None:
    settings.REDLOCK_URLS, settings.ZOOKEEPER_HOSTS = [], ""
    html = Client().get("/").content.decode()
    offered = re.findall(r'<option value="([^"]+)" data-title="[^"]+" data-summary="[^"]+"', html)
    assert offered == [name for name, one in STRATEGIES.items() if not one.needs]
    assert "Make both buy the last unit." in html


def test_the_page_carries_no_script_or_style_of_its_own_and_nothing_from_another_place() -> None:
    html = Client().get("/").content.decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)", html) == []
    assert re.findall(r"<style| style=| on[a-z]+=", html) == []
    assert re.findall(r"(?:src|href)=\"(?!/|#)[^\"]*", html) == []


def test_without_locust_the_button_says_how_to_get_it(settings: Any) -> None:
    settings.LOCUST_URL = ""
    html = Client().get("/").content.decode()
    assert re.search(r'<button id="start"[^>]* disabled>Start with make serve</button>', html)
    answer = Client().post("/rush", RUSH)
    assert answer.status_code == 503
    assert "make serve" in answer.json()["error"]


def test_a_locust_that_went_away_is_named(settings: Any) -> None:
    settings.LOCUST_URL = "http://127.0.0.1:9"
    answer = Client().post("/rush", RUSH)
    assert answer.status_code == 503
    assert "http://127.0.0.1:9" in answer.json()["error"]


def test_a_rush_is_started_as_it_was_asked_for(locust: Locust) -> None:
    answer = Client().post("/rush", RUSH)
    assert answer.status_code == 202
    assert locust.started == [
        {
            "user_count": "20",
            "spawn_rate": "100",
            "product": "apple",
            "lock": "none",
            "stock": "10",
            "hold_ms": "0",
        }
    ]


@rolled_back
def test_locust_is_shown_its_token_and_the_page_is_not(locust: Locust, settings: Any) -> None:
    settings.LOCUST_TOKEN = "of-locust"
    client = Client()
    assert client.post("/rush", RUSH).status_code == 202
    assert locust.bearers == {"Bearer of-locust"}
    for path in ("/", "/state", "/history"):
        assert "of-locust" not in client.get(path).content.decode()


@pytest.mark.parametrize(
    ("refusal", "status", "said"),
    [
        ((400, "stock: '-1' is not ..."), 400, "Locust did not start the rush: stock: '-1' is not"),
        ((403, "LOCUST_TOKEN is missing"), 503, "refuses: LOCUST_TOKEN is missing"),
    ],
)
def test_what_locust_refuses_is_said_with_its_reason(
    locust: Locust, refusal: tuple[int, str], status: int, said: str
) -> None:
    locust.refuses = refusal
    answer = Client().post("/rush", RUSH)
    assert (answer.status_code, said in answer.json()["error"]) == (status, True)
    assert locust.started == []


def test_a_form_of_another_site_starts_nothing(locust: Locust) -> None:
    stranger = Client(enforce_csrf_checks=True)
    for path in ("/rush", "/steps", "/steps/step"):
        assert stranger.post(path, RUSH).status_code == 403
    assert locust.started == []
    stranger.get("/")  # now it is none
    token = stranger.cookies["csrftoken"].value
    assert stranger.post("/rush", {**RUSH, "csrfmiddlewaretoken": token}).status_code == 202


def test_outside_a_demo_nothing_is_started(locust: Locust, settings: Any) -> None:
    settings.SHOP_DEMO = False
    for path in ("/rush", "/steps", "/steps/step"):
        answer = Client().post(path, RUSH)
        assert (answer.status_code, "SHOP_DEMO=1" in answer.json()["error"]) == (403, True)
    assert locust.started == []


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("lock", "nonsense", "Choose one of the list."),
        ("buyers", "0", "A whole number from 1 to 1000."),
        ("buyers", "many", "A whole number from 1 to 1000."),
        ("buyers", "", "A whole number from 1 to 1000."),
        ("stock", "-1", "A whole number from 0 to 10000."),
        ("stock", "1.5", "A whole number from 0 to 10000."),
        ("hold_ms", "5001", "A whole number from 0 to 5000."),
    ],
)
def test_bad_input_is_reported_beside_its_field_and_starts_nothing(
    locust: Locust, field: str, value: str, said: str
) -> None:
    answer = Client().post("/rush", {**RUSH, field: value})
    assert (answer.status_code, answer.json()["fields"]) == (400, {field: said})
    assert locust.started == []


@pytest.mark.parametrize("state", ["spawning", "running", "stopping"])
def test_one_rush_at_a_time(locust: Locust, state: str) -> None:
    locust.state = state
    answer = Client().post("/rush", RUSH)
    assert (answer.status_code, locust.started) == (409, [])


def test_a_second_click_counts_before_locust_knows_of_the_first(locust: Locust) -> None:
    assert Client().post("/rush", RUSH).status_code == 202
    assert Client().post("/rush", RUSH).status_code == 409
    locust.number, locust.state = 1, "stopped"  # that one is over
    assert Client().post("/rush", RUSH).status_code == 202


@rolled_back
def test_the_state_has_the_sales_figures_and_whether_a_rush_is_on(locust: Locust) -> None:
    sale = open_sale(3)
    locust.state = "running"
    answer = Client().get("/state").json()
    assert (answer["sale"]["sale"], answer["sale"]["stock_left"]) == (sale.pk, 3)
    assert answer["steps"] is None
    assert answer["rush"] == {"on": True, "started": None, "number": 0}


@committed
def test_a_look_counts_as_every_report_does() -> None:
    sale = open_sale(2)
    buy(lock="redis")
    answer = Client().get("/state").json()["sale"]
    assert answer == Client().get(f"/sales/{sale.pk}").json()
    assert (answer["orders"], answer["stock_left"]) == (1, 1)


@rolled_back
def test_a_look_is_one_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    open_sale(3)
    with django_assert_num_queries(1):
        Client().get("/state")


@rolled_back
def test_the_shelf_is_shown_while_redis_is_down(redis_outage: Outage, settings: Any) -> None:
    settings.LOCUST_URL = "http://127.0.0.1:9"
    open_sale(3)
    redis_outage.begin()
    answer = Client().get("/state").json()
    assert (answer["sale"]["stock_left"], answer["rush"], answer["steps"]) == (3, None, None)
    assert Client().post("/rush", RUSH).status_code == 503


@committed
def test_the_history_shows_sales_side_by_side_with_lock_and_verdict(locust: Locust) -> None:
    judged = open_sale(2)
    buy(lock="row-lock")
    sold = open_sale(1)
    buy(lock="redis")
    open_sale(1)
    locust.runs = [{"sale": judged.pk, "verdict": "undersold", "lock": "row-lock", "buyers": 2}]
    shown = Client().get("/history").json()["sales"][:3]  # newest first
    assert [(sale["verdict"], sale["locks"], sale["run"]["buyers"]) for sale in shown] == [
        ("open", [], None),
        ("exact", ["redis"], None),
        ("undersold", ["row-lock"], 2),
    ]
    assert shown[1]["sale"] == sold.pk


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_code_of_every_lock_can_be_read(name: str) -> None:
    parts = Client().get(f"/strategies/{name}/code").json()["parts"]
    own, *_, inside = parts
    assert own["file"] == STRATEGIES[name].file
    assert "STRATEGY =" not in own["code"]
    assert "import" not in re.sub(r'""".*?"""', "", own["code"], flags=re.DOTALL)
    assert inside["code"].startswith("def sell_one(")


def test_the_code_of_a_flawed_lock_has_the_lock_itself() -> None:
    files = [part["file"] for part in Client().get("/strategies/setnx/code").json()["parts"]]
    assert files == ["shop/strategies/setnx.py", "locks/classic/setnx.py", "shop/purchase.py"]
    assert Client().get("/strategies/nonsense/code").status_code == 400
