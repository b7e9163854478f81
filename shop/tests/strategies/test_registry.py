"""The registry of strategies: each entry has valid fields and a unique name."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from pytest_django import Settings

from shop.strategies import STRATEGIES, Strategy

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def read_source(strategy: Strategy) -> str:
    """Return the text of the file that defines a strategy."""
    return (Path(settings.BASE_DIR) / strategy.file).read_text()


def test_names_and_titles_are_unique() -> None:
    assert [strategy.name for strategy in STRATEGIES.values()] == list(STRATEGIES)
    assert len({strategy.title for strategy in STRATEGIES.values()}) == len(STRATEGIES)


@every_strategy
def test_fields_and_docstring_follow_the_conventions(strategy: Strategy) -> None:
    """The fields are valid, and the docstring of a flawed strategy shows how it fails.

    `rush_verdict` is the expected verdict if many buyers come at the same moment. `article` begins
    with the article that the strategy comes from, A0 to A4, or is `beyond` if it comes from none.
    `needs` is the name of a setting with the URLs of servers, such as REDLOCK_URLS; empty if the
    strategy needs none.
    """
    assert re.fullmatch(r"[A-Z0-9][^.]{0,98}\.", strategy.summary), "one sentence"
    assert re.match(r"A[0-4]\b|beyond$", strategy.article)
    assert strategy.rush_verdict in {"exact", "oversold"}
    assert strategy.rush_verdict == "exact" or not strategy.sound
    if strategy.needs:
        # A misspelled name raises AttributeError. In the tests the setting itself is empty.
        assert not getattr(settings, strategy.needs)
    docstring = ast.get_docstring(ast.parse(read_source(strategy))) or ""
    assert docstring.startswith("FLAW: ") == (not strategy.sound), (
        "the docstring of a flawed strategy, and of no other, begins with FLAW: "
    )
    timeline = re.search(r"^    (A |time +[0-9.]+ )", docstring, re.MULTILINE)
    assert strategy.sound or timeline, (
        "show how it fails as a timeline: indented lines that begin with `time 0.0` or `A `"
    )


def get_strategies() -> dict[str, dict[str, Any]]:
    """Send GET /strategies, and return the JSON object of each strategy by its name."""
    entries = Client().get("/strategies").json()["strategies"]
    return {entry["name"]: entry for entry in entries}


def test_strategies_are_listed_in_the_order_of_the_registry() -> None:
    assert list(get_strategies()) == list(STRATEGIES)


def test_listed_strategy_has_its_fields() -> None:
    """GET /strategies returns all public fields of `token-watchdog`, here written out."""
    assert get_strategies()["token-watchdog"] == {
        "name": "token-watchdog",
        "title": "Token with a watchdog",
        "article": "A2 A4",
        "summary": STRATEGIES["token-watchdog"].summary,
        "file": "shop/strategies/token_watchdog.py",
        "backend": "redis",
        "sound": False,
        "renewed": True,
        "fenced": False,
        "takes_over": False,
        "reserves": False,
        "deferred": False,
        "needs": "",
        "expected": {"rush": "exact"},
        "available": True,
    }


@pytest.mark.parametrize(
    ("name", "setting"), [("redlock", "REDLOCK_URLS"), ("zookeeper", "ZOOKEEPER_HOSTS")]
)
def test_strategy_is_available_if_its_servers_are_configured(
    name: str, setting: str, settings: Settings
) -> None:
    """The field `available` of GET /strategies is false while the strategy's setting is empty."""
    setattr(settings, setting, [])
    assert not get_strategies()[name]["available"]
    setattr(settings, setting, ["a-server"])
    assert get_strategies()[name]["available"]
