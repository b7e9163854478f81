"""The numbers in the lessons' texts are those of observed.json, and confirm the lessons' answers.

`python -m workshop observe` runs the lessons' commands and writes their results, the observations,
to observed.json. A lesson's field `expect` is an expression over the observations. It is true if
the lesson's answer is right.
"""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from workshop.lessons import Lesson, lessons
from workshop.observe import OBSERVED_BLOCK, OBSERVED_FILE, make_observed_block, meets_expectation
from workshop.tests.test_lessons import EACH_LESSON

#: The name of one of the articles in docs/sources.md, such as A1. Its digit is no result.
ARTICLE = re.compile(r"\bA\d\b")
#: A placeholder in the field `observed` of lessons.toml.
PLACEHOLDER = re.compile(r"\{[^}]*\}")
#: Verdict -> a verdict that contradicts it.
OPPOSITE_VERDICTS = {
    "exact": "oversold",
    "oversold": "exact",
    "deadlock": "exact",
    "undersold": "exact",
}
#: Number of all schedules of two buyers. In observed.json, `violates` is the number of those that
#: sell the last unit twice.
SCHEDULE_COUNT = 20


def read_observations() -> dict[str, Any]:
    """Return the content of observed.json."""
    return dict(json.loads(OBSERVED_FILE.read_text(encoding="utf-8")))


def read_observe_section(lesson: Lesson) -> str:
    """Return the section Observe of the lesson's text."""
    return lesson.text.partition("## Observe\n")[2].partition("\n## ")[0]


def find_digits(text: str) -> list[str]:
    """Return the digits in a text, except those in the articles' names."""
    return re.findall(r"\d", ARTICLE.sub("", text))


@EACH_LESSON
def test_answer_of_a_lesson_is_what_was_observed(lesson: Lesson) -> None:
    assert meets_expectation(lesson, read_observations())


@EACH_LESSON
def test_every_number_of_an_observe_section_is_generated(lesson: Lesson) -> None:
    """An Observe section has digits only in the block that the command `observe` writes.

    The template of this block has no digits, either.
    """
    section = read_observe_section(lesson)
    blocks = [block[0] for block in OBSERVED_BLOCK.finditer(section)]
    expected_blocks = []
    if lesson.observed:
        expected_blocks.append(make_observed_block(lesson, read_observations()))
    assert blocks == expected_blocks, "the text should have the numbers of observed.json"
    assert find_digits(OBSERVED_BLOCK.sub("", section)) == []
    assert find_digits(PLACEHOLDER.sub("", lesson.observed)) == []


def test_expectation_cannot_call_a_builtin_function() -> None:
    """A lesson's `expect` is an expression. It is refused if it calls the builtin `open`."""
    with pytest.raises(NameError):
        meets_expectation(replace(lessons()[1], expect="open('/etc/passwd')"), read_observations())


@EACH_LESSON
def test_expectation_is_false_for_opposite_observations(lesson: Lesson) -> None:
    """A lesson's `expect` is false if the observations are replaced by their opposites.

    Each verdict becomes one that contradicts it, each count of schedules becomes the count of the
    other schedules, and all durations become equal.
    """
    observations = read_observations()
    observations["violates"] = {
        strategy: SCHEDULE_COUNT - count for strategy, count in observations["violates"].items()
    }
    # All strategies took the same time.
    observations["ratio"] = dict.fromkeys(observations["ratio"], 1.0)
    for runs in (observations["demo"], observations["matrix"], *observations["cells"].values()):
        for run in runs.values():
            run["verdict"] = OPPOSITE_VERDICTS[run["verdict"]]
    assert not meets_expectation(lesson, observations)
