"""The registry: what it says of a strategy is complete, true, and written once."""

import ast
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from shop.strategies import STRATEGIES, Strategy

each = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def source(strategy: Strategy) -> str:
    return (Path(settings.BASE_DIR) / strategy.file).read_text()


def test_there_are_29_each_of_a_name_and_a_title_of_its_own() -> None:
    assert len(STRATEGIES) == 29
    assert [strategy.name for strategy in STRATEGIES.values()] == list(STRATEGIES)
    assert len({strategy.title for strategy in STRATEGIES.values()}) == 29


@each
def test_its_file_and_its_facts_say_what_it_is_and_a_flawed_one_says_so(strategy: Strategy) -> None:
    assert re.fullmatch(r"[A-Z0-9][^.]{0,98}\.", strategy.summary), "one sentence"
    assert re.match(r"A[0-4]\b|beyond$", strategy.article)
    assert strategy.rush in {"exact", "oversold"}
    assert strategy.rush == "exact" or not strategy.sound
    assert not strategy.needs or not getattr(settings, strategy.needs)
    said = ast.get_docstring(ast.parse(source(strategy))) or ""
    assert ("FLAW: " in said) == (not strategy.sound)
    timeline = re.search(r"^    (A |time +[0-9.]+ )", said, re.MULTILINE)
    assert strategy.sound or timeline, "how it fails is told as a timeline"


@pytest.mark.parametrize("given", [False, True])
def test_get_strategies_answers_what_the_registry_says(
    given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {strategy.needs for strategy in STRATEGIES.values() if strategy.needs}
    assert needed == {"REDLOCK_URLS", "ZOOKEEPER_HOSTS"}
    for name in needed:
        monkeypatch.setattr(settings, name, ["one"] if given else [])
    facts = (
        *("name", "title", "article", "summary", "file", "backend", "sound", "renewed", "fenced"),
        *("takes_over", "reserves", "deferred", "needs"),
    )
    assert Client().get("/strategies").json()["strategies"] == [
        {
            **{fact: getattr(strategy, fact) for fact in facts},
            "expected": {"rush": strategy.rush},
            "available": given or not strategy.needs,
        }
        for strategy in STRATEGIES.values()
    ]
