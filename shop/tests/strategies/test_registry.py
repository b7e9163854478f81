"""The registry: its facts about the strategies are complete, true and written once."""

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


def source(strategy: Strategy) -> str:
    return (Path(settings.BASE_DIR) / strategy.file).read_text()


def test_names_and_titles_are_unique() -> None:
    assert [strategy.name for strategy in STRATEGIES.values()] == list(STRATEGIES)
    assert len({strategy.title for strategy in STRATEGIES.values()}) == len(STRATEGIES)


@every_strategy
def test_file_and_facts_of_a_strategy_agree(strategy: Strategy) -> None:
    assert re.fullmatch(r"[A-Z0-9][^.]{0,98}\.", strategy.summary), "one sentence"
    assert re.match(r"A[0-4]\b|beyond$", strategy.article)
    assert strategy.rush in {"exact", "oversold"}
    assert strategy.rush == "exact" or not strategy.sound
    assert not strategy.needs or not getattr(settings, strategy.needs)
    docstring = ast.get_docstring(ast.parse(source(strategy))) or ""
    assert docstring.startswith("FLAW: ") == (not strategy.sound), (
        "the docstring of a flawed strategy, and of no other, begins with FLAW: "
    )
    timeline = re.search(r"^    (A |time +[0-9.]+ )", docstring, re.MULTILINE)
    assert strategy.sound or timeline, (
        "show how it fails as a timeline: indented lines that begin with `time 0.0` or `A `"
    )


def listed() -> dict[str, dict[str, Any]]:
    """Return what GET /strategies says, by name."""
    entries = Client().get("/strategies").json()["strategies"]
    return {entry["name"]: entry for entry in entries}


def test_strategies_are_listed_in_order() -> None:
    assert list(listed()) == list(STRATEGIES)


def test_listed_strategy_has_its_facts() -> None:
    assert listed()["token-watchdog"] == {
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
    assert not listed()[name]["available"]
    setattr(settings, setting, ["one"])
    assert listed()[name]["available"]
