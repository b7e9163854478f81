"""The observations in the lessons are those that were recorded."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from workshop.lessons import Lesson, lessons
from workshop.observe import OBSERVED, OBSERVED_BLOCK, make_observed_block, meets_expectation
from workshop.tests.test_lessons import EACH

#: The articles' names are no figures.
ARTICLE = re.compile(r"\bA\d\b")


def observed() -> dict[str, Any]:
    return dict(json.loads(OBSERVED.read_text(encoding="utf-8")))


def observe_section(lesson: Lesson) -> str:
    return lesson.text.partition("## Observe\n")[2].partition("\n## ")[0]


@EACH
def test_answer_of_a_lesson_is_what_was_observed(lesson: Lesson) -> None:
    assert meets_expectation(lesson, observed())


@EACH
def test_every_figure_of_an_observe_section_is_generated(lesson: Lesson) -> None:
    text = observe_section(lesson)
    blocks = OBSERVED_BLOCK.findall(text)
    assert len(blocks) == (1 if lesson.observed else 0)
    if lesson.observed:
        written_block = OBSERVED_BLOCK.search(text)
        assert written_block is not None
        assert written_block[0] == make_observed_block(lesson, observed()), (
            "python -m workshop observe"
        )
    assert re.findall(r"\d", ARTICLE.sub("", OBSERVED_BLOCK.sub("", text))) == []
    assert re.findall(r"\d", ARTICLE.sub("", re.sub(r"\{[^}]*\}", "", lesson.observed))) == []


def test_predicate_sees_only_the_observations() -> None:
    with pytest.raises(NameError):
        meets_expectation(replace(lessons()[1], expect="open('/etc/passwd')"), observed())


@EACH
def test_predicate_would_notice_another_outcome(lesson: Lesson) -> None:
    """Every verdict turned round: no answer may survive that."""
    turned = {"exact": "oversold", "oversold": "exact", "deadlock": "exact", "undersold": "exact"}
    observations = observed()
    observations["violates"] = {
        lock: 20 - number for lock, number in observations["violates"].items()
    }
    observations["ratio"] = dict.fromkeys(observations["ratio"], 1.0)
    for table in (observations["demo"], observations["matrix"], *observations["cells"].values()):
        for run in table.values():
            run["verdict"] = turned[run["verdict"]]
    assert not meets_expectation(lesson, observations)
