"""The registry: what it says of a strategy is complete, true, and written once."""

from __future__ import annotations

import ast
import difflib
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from shop.strategies import STRATEGIES, Strategy

FOLDER = Path(settings.BASE_DIR) / "shop" / "strategies"
#: What they share: no strategy of its own, so no limit of one screen.
SHARED = {"__init__"}

each = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def source(strategy: Strategy) -> str:
    return (Path(settings.BASE_DIR) / strategy.file).read_text()


def test_there_are_29_each_of_a_name_and_a_title_of_its_own() -> None:
    assert len(STRATEGIES) == 29
    assert [strategy.name for strategy in STRATEGIES.values()] == list(STRATEGIES)
    assert len({strategy.title for strategy in STRATEGIES.values()}) == 29


def test_every_file_of_the_folder_is_in_the_registry_but_for_what_they_share() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - SHARED
    assert files == {Path(strategy.file).stem for strategy in STRATEGIES.values()}


@each
def test_its_summary_is_one_sentence_of_at_most_100_characters(strategy: Strategy) -> None:
    assert re.fullmatch(r"[A-Z0-9][^.]*\.", strategy.summary)
    assert len(strategy.summary) <= 100


@each
def test_its_file_opens_with_what_it_is_and_a_flawed_one_says_so(strategy: Strategy) -> None:
    said = ast.get_docstring(ast.parse(source(strategy))) or ""
    first = said.partition("\n\n")[0]
    assert first.endswith((".", ":")), "the docstring's first paragraph is a sentence"
    assert ("FLAW: " in said) == (not strategy.sound)


@each
def test_a_flawed_strategy_tells_how_it_fails_as_a_timeline(strategy: Strategy) -> None:
    said = ast.get_docstring(ast.parse(source(strategy))) or ""
    assert strategy.sound or re.search(r"^    (A |time +[0-9.]+ )", said, re.MULTILINE)


@each
def test_it_comes_from_an_article_or_says_that_it_goes_beyond(strategy: Strategy) -> None:
    assert re.match(r"A[0-4]\b|beyond$", strategy.article)


@each
def test_a_sound_one_is_exact_in_the_rush(strategy: Strategy) -> None:
    assert strategy.rush in {"exact", "oversold"}
    assert strategy.rush == "exact" or not strategy.sound


@each
def test_it_imports_no_other_strategy(strategy: Strategy) -> None:
    assert "from shop.strategies" not in source(strategy)


@each
def test_what_it_needs_is_a_setting_that_is_empty_unless_it_is_given(strategy: Strategy) -> None:
    assert not strategy.needs or not getattr(settings, strategy.needs)


@pytest.mark.parametrize("given", [False, True])
def test_get_strategies_answers_what_the_registry_says(
    given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {strategy.needs for strategy in STRATEGIES.values() if strategy.needs}
    assert needed == {"REDLOCK_URLS", "ZOOKEEPER_HOSTS"}
    for name in needed:
        monkeypatch.setattr(settings, name, ["one"] if given else [])
    assert Client().get("/strategies").json() == {
        "strategies": [
            {
                "name": strategy.name,
                "title": strategy.title,
                "article": strategy.article,
                "summary": strategy.summary,
                "expected": {"rush": strategy.rush},
                "file": strategy.file,
                "backend": strategy.backend,
                "sound": strategy.sound,
                "renewed": strategy.renewed,
                "fenced": strategy.fenced,
                "takes_over": strategy.takes_over,
                "reserves": strategy.reserves,
                "deferred": strategy.deferred,
                "needs": strategy.needs,
                "available": given or not strategy.needs,
            }
            for strategy in STRATEGIES.values()
        ]
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [("setnx", "setnx-expire"), ("setnx-expire-lua", "token"), ("setpx-del", "token")],
)
def test_two_that_differ_in_one_idea_show_nothing_else_side_by_side(one: str, other: str) -> None:
    """Of the class: its first lines, and the statements that are the idea."""
    ours, others = (
        source(STRATEGIES[name]).partition("\nclass ")[2].partition("STRATEGY")[0].splitlines()
        for name in (one, other)
    )
    differ = [line for line in difflib.ndiff(ours, others) if line.startswith("- ")]
    assert len(differ) <= 6, differ
