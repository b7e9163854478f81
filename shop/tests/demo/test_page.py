"""The page and what it asks for; in a browser it is tested in loadtest/tests/test_page.py."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client
from pytest_django import DjangoAssertNumQueries

from shop.demo.forms import MISSING
from shop.strategies import STRATEGIES
from shop.tests.outage import Outage
from shop.tests.rushes import Rushes
from shop.tests.till import buy, committed, open_sale, rolled_back


def test_the_page_lists_every_lock_and_says_why_one_cannot_be_chosen(settings: Any) -> None:
    """A strategy that is left out of the list would be missed by whoever read of it."""
    settings.REDLOCK_URLS, settings.ZOOKEEPER_HOSTS = [], ""
    html = Client().get("/").content.decode()
    rushes, steps = re.findall(r"<select.*?</select>", html, re.DOTALL)
    for form in (rushes, steps):
        options = re.findall(r'<option value="([^"]+)"([^>]*)>([^<]+)', form)
        assert [name for name, *_ in options] == list(STRATEGIES)
        grey = {name: text for name, more, text in options if "disabled" in more}
        assert list(grey) == ["redlock", "zookeeper"]
        assert grey["redlock"].endswith("(needs five more Redis servers: REDLOCK_URLS)")
        assert grey["zookeeper"].endswith("(needs ZooKeeper: ZOOKEEPER_HOSTS)")
    assert rushes.count("data-summary=") == len(STRATEGIES)


def test_every_setting_that_a_strategy_needs_has_its_reason() -> None:
    assert {one.needs for one in STRATEGIES.values() if one.needs} == set(MISSING)


def test_the_page_carries_no_script_or_style_of_its_own_and_nothing_from_another_place() -> None:
    html = Client().get("/").content.decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)", html) == []
    assert re.findall(r"<style| style=| on[a-z]+=", html) == []
    assert re.findall(r"(?:src|href)=\"(?!/|#)[^\"]*", html) == []


@rolled_back
def test_the_state_has_the_sales_figures_and_whether_a_rush_is_on(rushes: Rushes) -> None:
    sale = open_sale(3)
    rushes.begin()
    answer = Client().get("/state").json()
    assert (answer["sale"]["sale"], answer["sale"]["stock_left"]) == (sale.pk, 3)
    assert answer["steps"] is None
    nothing = {"number": 0, "rush": None, "last": None}
    assert answer["rush"] == {"on": True, "started": {"lock": "none"}, **nothing}


@rolled_back
def test_the_verdict_is_of_the_rush_of_this_sale_and_carries_its_lock(rushes: Rushes) -> None:
    """Not of the lock that is chosen in the form, and not of the last rush of another sale."""
    sale = open_sale(3)
    rushes.say(last={"sale": sale.pk, "lock": "none", "verdict": "unknown"})
    shown = Client().get("/state").json()["sale"]
    assert (shown["verdict"], shown["lock"]) == ("unknown", "none")
    open_sale(3)
    shown = Client().get("/state").json()["sale"]
    assert (shown["verdict"], shown["lock"]) == ("open", "")


@rolled_back
def test_while_a_rush_runs_the_state_says_how_far_it_is(rushes: Rushes) -> None:
    sale = open_sale(3)
    far = {"sale": sale.pk, "lock": "token", "buyers": 20, "arrived": 20, "answered": 4}
    rushes.begin()
    rushes.say(rush={**far, "left_s": 60.0})
    answer = Client().get("/state").json()
    assert (answer["sale"]["verdict"], answer["sale"]["lock"]) == ("running", "token")
    assert answer["rush"]["rush"] == {**far, "left_s": 60.0}


@committed
def test_a_look_counts_as_every_report_does() -> None:
    sale = open_sale(2)
    buy(lock="redis")
    answer = Client().get("/state").json()["sale"]
    counted = Client().get(f"/sales/{sale.pk}").json()
    # The page looks up to four times a second: it asks PostgreSQL alone.
    counted |= dict.fromkeys(("settled", "unsettled", "broken_promises"))
    assert answer == {**counted, "locks": ["redis"], "lock": "redis", "verdict": "open"}
    assert (answer["orders"], answer["stock_left"]) == (1, 1)


@rolled_back
def test_a_look_is_one_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    open_sale(3)
    with django_assert_num_queries(1):
        Client().get("/state")


@rolled_back
def test_the_shelf_is_shown_while_redis_is_down(redis_outage: Outage) -> None:
    open_sale(3)
    redis_outage.begin()
    answer = Client().get("/state").json()
    assert (answer["sale"]["stock_left"], answer["steps"]) == (3, None)


@rolled_back
def test_a_sale_that_nobody_came_to_is_not_in_the_history() -> None:
    open_sale(7)
    now = open_sale(8)
    assert [sale["sale"] for sale in Client().get("/history").json()["sales"]] == [now.pk]


@committed
def test_the_history_shows_sales_side_by_side_with_lock_and_verdict(rushes: Rushes) -> None:
    judged = open_sale(2)
    buy(lock="row-lock")
    sold = open_sale(1)
    buy(lock="redis")
    open_sale(1)
    rushes.ran({"sale": judged.pk, "verdict": "undersold", "lock": "row-lock", "buyers": 2})
    shown = Client().get("/history").json()["sales"][:3]  # newest first
    assert [(sale["verdict"], sale["lock"], sale["run"]["buyers"]) for sale in shown] == [
        ("open", "", None),
        ("exact", "redis", None),
        ("undersold", "row-lock", 2),
    ]
    assert shown[1]["sale"] == sold.pk
