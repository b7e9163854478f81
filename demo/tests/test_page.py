"""The demo's page, its requests, and a lesson of the workshop on the page.

loadtest/tests/test_page.py tests the page in a browser. A rush is many buyers at once.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.http import QueryDict
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from demo.lesson import read_lesson
from demo.tests.rush_folder import RushFolder
from demo.views import MISSING_SERVERS
from shop.strategies import STRATEGIES
from shop.tests.node import run_python
from shop.tests.outage import Outage
from shop.tests.purchases import buy, committed, open_sale, rolled_back


def test_page_lists_every_strategy_and_its_missing_servers(settings: Any) -> None:
    """Strategies whose servers are missing are listed, but cannot be chosen.

    They are listed because readers of the documents look for them.
    """
    settings.REDLOCK_URLS = []
    settings.ZOOKEEPER_HOSTS = ""
    html = Client().get("/").content.decode()
    rush_select, round_select = re.findall(r"<select.*?</select>", html, re.DOTALL)
    for select in (rush_select, round_select):
        options = re.findall(r'<option value="([^"]+)"([^>]*)>([^<]+)', select)
        assert [name for name, _, _ in options] == list(STRATEGIES)
        disabled = {name: text for name, attributes, text in options if "disabled" in attributes}
        assert list(disabled) == ["redlock", "zookeeper"]
        assert disabled["redlock"].endswith("(needs five more Redis servers: set REDLOCK_URLS)")
        assert disabled["zookeeper"].endswith("(needs ZooKeeper: set ZOOKEEPER_HOSTS)")
    # MISSING_SERVERS has the texts for all servers that a strategy needs.
    needed_servers = {strategy.needs for strategy in STRATEGIES.values() if strategy.needs}
    assert needed_servers == set(MISSING_SERVERS)
    assert rush_select.count("data-summary=") == len(STRATEGIES)


#: A program that prints the page.
PRINT_PAGE = """
import django
django.setup()
from django.test import Client
print(Client().get("/", headers={"Host": "127.0.0.1"}).content.decode())
"""


def test_page_says_if_the_database_is_not_postgresql(tmp_path: Path) -> None:
    """The page says that the database is SQLite. A strategy that cannot use SQLite is disabled."""
    url = f"sqlite:///{tmp_path}/shop.sqlite3"
    completed = run_python("-c", PRINT_PAGE, SHOP_DEMO="1", DATABASE_URL=url)
    assert completed.returncode == 0, completed.stderr
    assert "all at the same instant, on SQLite." in completed.stdout
    options = re.findall(r'<option value="reserve"[^>]*>[^<]+', completed.stdout)
    assert len(options) == 2, "both forms should list the strategy"
    assert all(text.endswith("(does not work with SQLite)") for text in options)
    assert "disabled" in options[0]
    # This process uses PostgreSQL, which the page does not mention.
    assert "all at the same instant." in Client().get("/").content.decode()


@rolled_back
def test_state_has_the_latest_sale_and_its_rush(rush_folder: RushFolder) -> None:
    """The verdict and the lock of a sale come from its rush, during the rush and afterwards.

    The next sale has no rush, so its verdict is `open`.
    """

    def read_state() -> Any:
        return Client().get("/state").json()

    first_sale = open_sale(3)
    rush_folder.write_request()
    state_after_request = read_state()
    assert state_after_request["sale"]["sale"] == first_sale.pk
    assert state_after_request["sale"]["stock_left"] == 3
    assert state_after_request["steps"] is None
    assert state_after_request["rush"] == {"on": True, "number": 0, "rush": None}
    progress = {"sale": first_sale.pk, "lock": "token", "buyers": 20, "arrived": 20, "answered": 4}
    rush_folder.write_progress({**progress, "left_s": 60.0})
    state_during_rush = read_state()
    sale = state_during_rush["sale"]
    assert (sale["verdict"], sale["lock"]) == ("running", "token")
    assert state_during_rush["rush"]["rush"] == {**progress, "left_s": 60.0}
    rush_folder.remove_request()
    rush_folder.write_finished_rush(
        {
            "sale": first_sale.pk,
            "lock": "none",
            "verdict": "unknown",
            "why": "1 buyer never became ready to buy",
        }
    )
    sale = read_state()["sale"]
    assert sale["why"] == "1 buyer never became ready to buy"
    assert (sale["verdict"], sale["lock"]) == ("unknown", "none")
    open_sale(3)
    next_sale = read_state()["sale"]
    assert (next_sale["verdict"], next_sale["lock"]) == ("open", "")


@committed
def test_state_takes_one_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    """The page requests the state up to four times a second, so one query must be enough."""
    sale = open_sale(2)
    buy(lock="redis")
    with django_assert_num_queries(1):
        sale_in_state = Client().get("/state").json()["sale"]
    report = Client().get(f"/sales/{sale.pk}").json()
    # These fields of the report need a request to Redis, too. So they are None in the state.
    report |= dict.fromkeys(("settled", "unsettled", "broken_promises"))
    assert sale_in_state.items() >= {**report, "lock": "redis", "verdict": "open"}.items()
    assert (sale_in_state["orders"], sale_in_state["stock_left"]) == (1, 1)


@rolled_back
def test_stock_is_shown_while_redis_is_down(redis_outage: Outage) -> None:
    """The page reads the sale from the database.

    The state of a round, in which a visitor leads two buyers step by step, is in Redis. Only this
    part, `steps`, is missing.
    """
    open_sale(3)
    redis_outage.begin()
    state = Client().get("/state").json()
    assert (state["sale"]["stock_left"], state["steps"]) == (3, None)


@committed
def test_history_has_lock_and_verdict_of_each_sale(rush_folder: RushFolder) -> None:
    """The table has the sales from newest to oldest.

    A closed sale without an order or a rush is left out. Each new sale closes the one before.
    """
    open_sale(7)  # this one is left out
    sale_of_rush = open_sale(2)
    buy(lock="row-lock")
    sale_without_rush = open_sale(1)
    buy(lock="redis")
    open_sale(1)
    rush_folder.write_finished_rush(
        {"sale": sale_of_rush.pk, "verdict": "undersold", "lock": "row-lock", "buyers": 2}
    )
    history = Client().get("/history").json()["sales"]  # newest first
    assert [(sale["verdict"], sale["lock"], sale["run"]["buyers"]) for sale in history] == [
        ("open", "", None),
        ("exact", "redis", None),
        ("undersold", "row-lock", 2),
    ]
    assert history[1]["sale"] == sale_without_rush.pk


# --- a lesson on the page, whose answer is shown only if the address requests it ------------------


LESSON_5_TOML = """
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
def lesson_5(settings: Any, tmp_path: Path) -> None:
    """Make a folder of lessons with lesson 5 only. It has two options; the right answer is b."""
    path = tmp_path / "lessons.toml"
    path.write_text(LESSON_5_TOML)
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / "05-late.md").write_text(
        "# Late\n\n## Observe\n\n<!-- observed -->\n`none`: 11 of 10.\n<!-- /observed -->\n\n"
        "## Explain\n\nToo much.\n\n## Exercise\n"
    )
    settings.SHOP_DEMO_LESSONS = str(path)


@pytest.mark.usefixtures("lesson_5")
def test_lesson_shows_its_answer_only_after_the_vote() -> None:
    """The class votes, and then the facilitator adds `answer` to the page's URL.

    Only then the page shows the answer and its explanation. Before, it shows the command.
    """
    assert read_lesson(QueryDict("lesson=5")) == {
        "number": 5,
        "title": "Late",
        "question": "What happens?",
        "options": [
            {"letter": "a", "text": "nothing", "votes": None},
            {"letter": "b", "text": "<code>much</code> &lt; all", "votes": None},
        ],
        "command": "make faults",
        "answer": "",
        "why": "",
        "observed": "",
        "voters": 0,
        "presets": [("lesson", "5")],
    }
    page = Client().get("/?lesson=5").content.decode()
    # `now-title` is the heading of the part with the latest sale.
    assert 'aria-labelledby="now-title" hidden' in page, (
        "the previous sale should be hidden, as it reveals the answer"
    )
    assert "What happens?" in page
    assert "make faults" in page
    assert "Too much." not in page
    page_with_lock = Client().get("/?lesson=5&lock=none").content.decode()
    assert "make faults" not in page_with_lock, (
        "a URL with a lock should show no command, because the page runs the rush"
    )
    page = Client().get("/?lesson=5&answer").content.decode()
    assert re.search(r'<li class="right">\s*<b>b</b>\s*<span[^>]*><code>much</code> &lt; all', page)
    assert "Too much." in page
    assert "make faults" not in page


@pytest.mark.usefixtures("lesson_5")
@pytest.mark.parametrize("votes", ["votes=3,12", "votes=3&votes=12", "votes=3,%2012"])
def test_votes_are_shown_next_to_the_options(votes: str) -> None:
    """The URL has the votes in one parameter, or in one for each option, as the form sends them.

    Here option a has 3 of the 15 votes, and option b has 12.
    """
    page = Client().get(f"/?lesson=5&{votes}").content.decode()
    counts = re.findall(r'<meter min="0" max="15" value="(\d+)"', page)
    assert counts == ["3", "12"]
    assert "3 of 15" in page
    assert "12 of 15" in page
    assert "11 of 10" not in page, "what was observed should be hidden, as it reveals the answer"
    assert re.findall(r'name="votes"[^>]* value="(\d*)"', page) == ["3", "12"]


@pytest.mark.usefixtures("lesson_5")
def test_answer_is_shown_with_votes_and_observation() -> None:
    """12 of the 15 voters chose option b. The observation is the Observe section of the lesson."""
    page = Client().get("/?lesson=5&votes=3,12&answer").content.decode()
    assert "12 of 15" in page
    assert "<code>none</code>: 11 of 10." in page


@pytest.mark.usefixtures("lesson_5")
def test_empty_vote_fields_show_no_votes() -> None:
    """If all fields for votes are empty, no votes are shown.

    An empty field next to a filled one counts as 0 votes.
    """
    page = Client().get("/?lesson=5&votes=&votes=").content.decode()
    assert "<meter" not in page
    page = Client().get("/?lesson=5&votes=4&votes=").content.decode()
    assert "4 of 4" in page
    assert "0 of 4" in page


@pytest.mark.usefixtures("lesson_5")
@pytest.mark.parametrize("votes", ["x", "-1,2", "1,2,3", "1000", "1.5", "1 2"])
def test_votes_that_are_not_counts_are_refused(votes: str) -> None:
    """Votes are one count from 0 to 999 for each option of the lesson, which has two options."""
    response = Client().get("/", {"lesson": "5", "votes": votes})
    assert response.status_code == 400
    assert "votes" in response.json()["error"]


@pytest.mark.usefixtures("lesson_5")
def test_unknown_lesson_is_refused_with_the_known_ones() -> None:
    response = Client().get("/?lesson=6")
    assert (response.status_code, response.json()["allowed"]) == (400, ["5"])


@pytest.mark.usefixtures("lesson_5")
def test_page_has_no_lesson_by_default(settings: Any) -> None:
    """The page shows a lesson only if the URL has its number and SHOP_DEMO_LESSONS is set."""
    assert read_lesson(QueryDict("")) is None
    settings.SHOP_DEMO_LESSONS = ""
    assert read_lesson(QueryDict("lesson=5")) is None


# --- while the buyers of a rush use every connection of the process's pool ------------------------


@pytest.fixture
def pooled_connection(transactional_db: None) -> Iterator[Any]:
    """Let this thread use connections from a pool of two.

    A node of `make serve` has such a pool, too, but a larger one.
    """
    unpooled_connection = connections["default"]
    pooled_connection: Any = unpooled_connection.copy()
    pool_options = {"min_size": 2, "max_size": 2, "timeout": 1}
    pooled_connection.settings_dict["OPTIONS"]["pool"] = pool_options
    pooled_connection.pool.open(wait=True)
    connections["default"] = pooled_connection
    yield pooled_connection
    connections["default"] = unpooled_connection
    pooled_connection.close()
    pooled_connection.close_pool()


def test_page_works_while_buyers_use_every_connection(
    pooled_connection: Any, rush_folder: RushFolder
) -> None:
    """The page's requests use a spare connection outside the pool, while buyers have to wait."""
    sale = open_sale(10)
    rush_folder.write_request()
    pooled_connection.close()  # gives this thread's connection back to the pool
    used_connections = [pooled_connection.pool.getconn() for _ in range(2)]
    response = Client().get("/state")
    assert (response.status_code, response.json()["sale"]["sale"]) == (200, sale.pk)
    for path in ("/history", f"/sales/{sale.pk}/curve"):
        assert Client().get(path).status_code == 200
    assert buy(lock="none").body["outcome"] == "unavailable", "buyers wait for the pool"
    assert Client().post("/rush/stop").status_code == 202
    current_connection: Any = connections["default"]
    assert current_connection is pooled_connection, "the next request should use the pool again"
    for used_connection in used_connections:
        pooled_connection.pool.putconn(used_connection)
    assert rush_folder.is_stop_requested
    sale.refresh_from_db()
    assert sale.closed_at is not None
