"""The registry: its entries are complete, true and unique."""

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
    """Return the source code of a strategy."""
    return (Path(settings.BASE_DIR) / strategy.file).read_text()


def test_names_and_titles_are_unique() -> None:
    assert [strategy.name for strategy in STRATEGIES.values()] == list(STRATEGIES)
    assert len({strategy.title for strategy in STRATEGIES.values()}) == len(STRATEGIES)


@every_strategy
def test_fields_and_docstring_follow_the_conventions(strategy: Strategy) -> None:
    """The fields are valid, and the docstring of a flawed strategy shows how it fails.

    `rush` is the expected verdict of a rush. `article` is the source, A0 to A4, or `beyond` the
    articles. `needs` is the name of the setting that has the servers which the strategy needs.
    """
    assert re.fullmatch(r"[A-Z0-9][^.]{0,98}\.", strategy.summary), "one sentence"
    assert re.match(r"A[0-4]\b|beyond$", strategy.article)
    assert strategy.rush in {"exact", "oversold"}
    assert strategy.rush == "exact" or not strategy.sound
    # The tests have no such servers, so the setting is empty. A wrong name has no setting.
    assert not strategy.needs or not getattr(settings, strategy.needs)
    docstring = ast.get_docstring(ast.parse(read_source(strategy))) or ""
    assert docstring.startswith("FLAW: ") == (not strategy.sound), (
        "the docstring of a flawed strategy, and of no other, begins with FLAW: "
    )
    timeline = re.search(r"^    (A |time +[0-9.]+ )", docstring, re.MULTILINE)
    assert strategy.sound or timeline, (
        "show how it fails as a timeline: indented lines that begin with `time 0.0` or `A `"
    )


def get_strategies() -> dict[str, dict[str, Any]]:
    """Return the entries of GET /strategies by name."""
    entries = Client().get("/strategies").json()["strategies"]
    return {entry["name"]: entry for entry in entries}


def test_strategies_are_listed_in_order() -> None:
    assert list(get_strategies()) == list(STRATEGIES)


def test_listed_strategy_has_its_fields() -> None:
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
    setattr(settings, setting, [])
    assert not get_strategies()[name]["available"]
    setattr(settings, setting, ["a-server"])
    assert get_strategies()[name]["available"]
