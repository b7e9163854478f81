"""The page, what it asks for, and a lesson on it; in a browser it is tested in
loadtest/tests/test_page.py."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from shop.demo.lesson import lesson
from shop.demo.page import MISSING
from shop.strategies import STRATEGIES
from shop.tests.outage import Outage
from shop.tests.rushes import Rushes
from shop.tests.till import buy, committed, open_sale, rolled_back


def test_the_page_lists_every_lock_and_says_why_one_cannot_be_chosen(settings: Any) -> None:
    """A strategy that is left out of the list would be missed by those who read of it."""
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
    assert {one.needs for one in STRATEGIES.values() if one.needs} == set(MISSING)
    assert rushes.count("data-summary=") == len(STRATEGIES)


@rolled_back
def test_the_state_is_of_this_sale_and_of_the_rush_that_is_on_or_was(rushes: Rushes) -> None:
    """The verdict is not of the lock that is chosen in the form, nor of another sale's rush."""

    def state() -> Any:
        return Client().get("/state").json()

    first = open_sale(3)
    rushes.begin()
    now = state()
    assert (now["sale"]["sale"], now["sale"]["stock_left"], now["steps"]) == (first.pk, 3, None)
    assert now["rush"] == {"on": True, "number": 0, "rush": None}
    far = {"sale": first.pk, "lock": "token", "buyers": 20, "arrived": 20, "answered": 4}
    rushes.say({**far, "left_s": 60.0})
    now = state()
    assert (now["sale"]["verdict"], now["sale"]["lock"]) == ("running", "token")
    assert now["rush"]["rush"] == {**far, "left_s": 60.0}
    rushes.end()
    rushes.ran({"sale": first.pk, "lock": "none", "verdict": "unknown"})
    assert (state()["sale"]["verdict"], state()["sale"]["lock"]) == ("unknown", "none")
    open_sale(3)
    assert (state()["sale"]["verdict"], state()["sale"]["lock"]) == ("open", "")


@committed
def test_a_look_is_one_query_and_counts_as_every_report_does(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale = open_sale(2)
    buy(lock="redis")
    with django_assert_num_queries(1):
        answer = Client().get("/state").json()["sale"]
    counted = Client().get(f"/sales/{sale.pk}").json()
    # The page looks up to four times a second: it asks PostgreSQL alone.
    counted |= dict.fromkeys(("settled", "unsettled", "broken_promises"))
    assert answer.items() >= {**counted, "lock": "redis", "verdict": "open"}.items()
    assert (answer["orders"], answer["stock_left"]) == (1, 1)


@rolled_back
def test_the_shelf_is_shown_while_redis_is_down(redis_outage: Outage) -> None:
    open_sale(3)
    redis_outage.begin()
    answer = Client().get("/state").json()
    assert (answer["sale"]["stock_left"], answer["steps"]) == (3, None)


@committed
def test_the_history_shows_sales_side_by_side_with_lock_and_verdict(rushes: Rushes) -> None:
    """Without those that nobody came to, but for the one that is open."""
    open_sale(7)
    judged = open_sale(2)
    buy(lock="row-lock")
    sold = open_sale(1)
    buy(lock="redis")
    open_sale(1)
    rushes.ran({"sale": judged.pk, "verdict": "undersold", "lock": "row-lock", "buyers": 2})
    shown = Client().get("/history").json()["sales"]  # newest first
    assert [(sale["verdict"], sale["lock"], sale["run"]["buyers"]) for sale in shown] == [
        ("open", "", None),
        ("exact", "redis", None),
        ("undersold", "row-lock", 2),
    ]
    assert shown[1]["sale"] == sold.pk


# --- a lesson on it: its question, and its answer only where the address asks for it --------------


LESSONS = """
[[lesson]]
number = 5
slug = "05-late"
title = "Late"
question = "What happens?"
options = ["nothing", "`much` < all"]
answer = "b"
command = "make faults"
"""


@pytest.fixture
def lessons(settings: Any, tmp_path: Path) -> None:
    path = tmp_path / "lessons.toml"
    path.write_text(LESSONS)
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / "05-late.md").write_text(
        "# Late\n\n## Explain\n\nToo much.\n\n## Exercise\n"
    )
    settings.SHOP_DEMO_LESSONS = str(path)


@pytest.mark.usefixtures("lessons")
def test_the_question_and_its_command_are_shown_and_after_the_vote_the_answer_and_why() -> None:
    assert lesson({"lesson": "5"}) == {
        "number": 5,
        "title": "Late",
        "question": "What happens?",
        "options": [("a", "nothing"), ("b", "<code>much</code> &lt; all")],
        "command": "make faults",
        "answer": "",
        "why": "",
    }
    page = Client().get("/?lesson=5").content.decode()
    assert 'aria-labelledby="now-title" hidden' in page, "the sale before would say the answer"
    assert ("What happens?" in page, "make faults" in page, "Too much." in page) == (
        True,
        True,
        False,
    )
    filled_in = Client().get("/?lesson=5&lock=none").content.decode()
    assert "make faults" not in filled_in, "the page itself runs it then"
    page = Client().get("/?lesson=5&answer").content.decode()
    assert '<li class="right"><b>b</b> <code>much</code> &lt; all</li>' in page
    assert ("Too much." in page, "make faults" in page) == (True, False)


@pytest.mark.usefixtures("lessons")
def test_an_unknown_lesson_is_refused_with_those_that_there_are() -> None:
    answer = Client().get("/?lesson=6")
    assert (answer.status_code, answer.json()["allowed"]) == (400, ["5"])


@pytest.mark.usefixtures("lessons")
def test_nothing_is_projected_without_a_question_or_without_lessons(settings: Any) -> None:
    assert lesson({}) is None
    settings.SHOP_DEMO_LESSONS = ""
    assert lesson({"lesson": "5"}) is None


# --- while the buyers of a rush have every connection of the process's pool -----------------------


@pytest.fixture
def pooled(transactional_db: None) -> Iterator[Any]:
    """This thread's connections come from a pool of two, as in a node of `make serve`."""
    alone = connections["default"]
    pooled: Any = alone.copy()
    pooled.settings_dict["OPTIONS"]["pool"] = {"min_size": 2, "max_size": 2, "timeout": 1}
    pooled.pool.open(wait=True)
    connections["default"] = pooled
    yield pooled
    connections["default"] = alone
    pooled.close()
    pooled.close_pool()


def test_the_page_shows_the_sale_and_stops_it_while_the_buyers_have_every_connection(
    pooled: Any, rushes: Rushes
) -> None:
    sale = open_sale(10)
    rushes.begin()
    pooled.close()
    taken = [pooled.pool.getconn() for _ in range(2)]
    answer = Client().get("/state")
    assert (answer.status_code, answer.json()["sale"]["sale"]) == (200, sale.pk)
    for path in ("/history", f"/sales/{sale.pk}/curve"):
        assert Client().get(path).status_code == 200
    assert buy(lock="none").body["outcome"] == "unavailable", "buyers wait for the pool"
    assert Client().post("/rush/stop").status_code == 202
    now: Any = connections["default"]
    assert now is pooled, "this thread's next request is one of the pool again"
    for one in taken:
        pooled.pool.putconn(one)
    assert rushes.is_to_stop
    sale.refresh_from_db()
    assert sale.closed_at is not None
