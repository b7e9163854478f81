"""Eight questions before and after; the answers stay with the participant."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache

from workshop.lessons import HERE


@dataclass(frozen=True, slots=True)
class Question:
    """One question, its options, the letter of the right one, and the lesson that shows it."""

    text: str
    options: list[str]
    answer: str
    lesson: int


@cache
def questions() -> list[Question]:
    """The quiz."""
    with (HERE / "quiz.toml").open("rb") as file:
        return [Question(**each) for each in tomllib.load(file)["question"]]


def score(answers: str) -> int:
    """How many of these letters are right."""
    return sum(
        said == question.answer for said, question in zip(answers, questions(), strict=False)
    )
