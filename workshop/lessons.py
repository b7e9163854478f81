"""The lessons, as lessons.toml has them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: What can be wrong with any exercise.
COMMON: Mapping[str, Mapping[str, str]] = {
    "broken": {
        "headline": "{error}",
        "why": "The file does not load, so nothing could be tried.",
        "question": "What does that line say?",
    },
    "raises": {
        "headline": "{error}",
        "why": "The code ended in the middle of its work.",
        "question": "What did it expect to find there?",
    },
    "endless": {
        "headline": "the code did not come back; it was at {where}",
        "why": "Whoever waits for it waits forever.",
        "question": "What ends this loop?",
    },
    "not-guarded": {
        "headline": "{file} ends without `buy = guarded(MyLock)`",
        "why": "The shop sells through `buy`; keep its line as it was.",
        "question": "Which line is missing?",
    },
    "never-acquires": {
        "headline": "try_lock() says False though nobody has the lock",
        "why": "Nobody can ever buy.",
        "question": "What does the command return when it succeeds?",
    },
    "gone": {
        "headline": "{file} is not there",
        "why": "There is nothing to check.",
        "question": "Do you want a new copy? Type reset.",
    },
    "rush-oversold": {
        "headline": "a rush of {buyers} buyers for {stock} units: {orders} orders",
        "why": "Alone the lock looks right; in the rush two buyers were in at once.",
        "question": "What do two buyers see of each other's lock?",
    },
    "rush-gave-up": {
        "headline": "a rush of {buyers} buyers for {stock} units: {orders} orders, {left} left",
        "why": "Buyers were answered sold_out while there was stock.",
        "question": "What does a buyer do who loses the race again?",
    },
    "never-sells": {
        "headline": "one buyer, one unit, nobody else: {outcome}",
        "why": "Nobody can ever buy.",
        "question": "What happens to the very first buyer?",
    },
    "rush-stuck": {
        "headline": "a rush of {buyers} buyers for {stock} units: {orders} orders, then nobody",
        "why": "A lock stayed, and everybody else waited for it in vain.",
        "question": "Which way out of the code leaves the lock where it is?",
    },
}


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson; the fields are explained at the top of lessons.toml."""

    number: int
    slug: str
    title: str
    teach: int
    exercise: int
    article: str
    question: str
    options: list[str]
    answer: str
    command: str
    file: str
    checks: list[str]
    expect: str
    hints: list[str]
    refusals: dict[str, dict[str, str]] = field(default_factory=dict)
    then: str = ""
    stays: bool = False
    observed: str = ""

    @property
    def text(self) -> str:
        """The lesson to read, Markdown."""
        return (HERE / "lessons" / f"{self.slug}.md").read_text(encoding="utf-8")

    @property
    def shipped(self) -> Path:
        """The exercise as it begins."""
        return HERE / "exercises" / self.file

    @property
    def solution(self) -> Path:
        return HERE / "solutions" / self.file

    def option(self, letter: str) -> str:
        """The text of an answer."""
        return self.options["abcdefgh".index(letter)]

    def words(self, code: str) -> Mapping[str, str]:
        """Headline, why and question of a refusal."""
        return self.refusals.get(code) or COMMON[code]


@cache
def lessons() -> dict[int, Lesson]:
    """Every lesson by its number, in order."""
    with (HERE / "lessons.toml").open("rb") as file:
        listed: list[dict[str, Any]] = tomllib.load(file)["lesson"]
    return {each["number"]: Lesson(**each) for each in listed}
