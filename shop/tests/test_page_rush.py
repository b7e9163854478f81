"""The rush that the page starts and stops, with a Locust that runs nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from shop.demo import rush
from shop.sale import stock
from shop.tests.locust import Locust
from shop.tests.till import buy, open_sale, rolled_back

RUSH = {"lock": "none", "buyers": "20", "stock": "10", "hold_ms": "0"}


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
            "deadline": "60",
        }
    ]


def test_a_rush_that_begins_after_the_last_one_was_stopped_is_not_said_to_have_failed(
    locust: Locust, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = rush._ask.__kwdefaults__
    assert usual is not None
    monkeypatch.setitem(usual, "timeout", 0.5)
    locust.begins_after = 1.0
    assert Client().post("/rush", RUSH).status_code == 202


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
    for path in ("/rush", "/rush/stop", "/steps", "/steps/step"):
        assert stranger.post(path, RUSH).status_code == 403
    assert locust.started == []
    stranger.get("/")  # now it is none
    token = stranger.cookies["csrftoken"].value
    assert stranger.post("/rush", {**RUSH, "csrfmiddlewaretoken": token}).status_code == 202


def test_outside_a_demo_nothing_is_started(locust: Locust, settings: Any) -> None:
    settings.SHOP_DEMO = False
    for path in ("/rush", "/rush/stop", "/steps", "/steps/step"):
        answer = Client().post(path, RUSH)
        assert (answer.status_code, "SHOP_DEMO=1" in answer.json()["error"]) == (403, True)
    assert locust.started == []


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("lock", "nonsense", "Choose one of the list."),
        ("buyers", "0", "A whole number from 1 to 20000."),
        ("buyers", "many", "A whole number from 1 to 20000."),
        ("buyers", "", "A whole number from 1 to 20000."),
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
def test_stop_ends_the_sale_and_tells_locust_with_its_token(locust: Locust, settings: Any) -> None:
    settings.LOCUST_TOKEN = "of-locust"
    sale = open_sale(10)
    buy(lock="none")
    locust.state = "running"
    assert Client().post("/rush/stop").status_code == 202
    assert (locust.stops, locust.bearers) == (1, {"Bearer of-locust"})
    sale.refresh_from_db()
    assert sale.closed_at is not None
    assert sale.final_stock == 9
    assert buy(lock="none").status == 404, "nothing is sold any more"
    locust.last = {"sale": sale.pk, "lock": "none", "verdict": "unknown", "stopped": True}
    shown = Client().get("/state").json()["sale"]
    assert (shown["verdict"], shown["orders"], shown["stock_left"]) == ("stopped", 1, 9)


@rolled_back
def test_where_no_rush_is_on_stop_says_so_and_closes_nothing(locust: Locust) -> None:
    sale = open_sale(10)
    answer = Client().post("/rush/stop")
    assert (answer.status_code, locust.stops) == (409, 0)
    sale.refresh_from_db()
    assert sale.closed_at is None


@rolled_back
def test_locust_is_stopped_although_the_sale_cannot_be_closed(
    locust: Locust, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times_out(**_: object) -> None:
        raise OperationalError

    monkeypatch.setattr(stock, "close", times_out)
    locust.state = "running"
    answer = Client().post("/rush/stop")
    assert (answer.status_code, locust.stops) == (503, 1)
    assert "The next rush closes it" in answer.json()["error"]
