"""The lessons, which are defined in lessons.toml."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: The part of an exercise to change, between its two marks.
MARKED_PART = re.compile(r"(# TODO[^\n]*\n)(.*?)([ ]*# END\n)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson; the fields are explained at the top of lessons.toml."""

    number: int
    slug: str
    title: str
    teach_minutes: int
    exercise_minutes: int
    article: str
    question: str
    options: list[str]
    answer: str
    objective: str
    key_points: list[str]
    misconceptions: dict[str, str]
    command: str
    file: str
    checks: list[str]
    expect: str
    hints: list[str]
    solution: str
    say: str
    late: str
    fast: str
    refusals: dict[str, dict[str, str]] = field(default_factory=dict)
    likely: list[str] = field(default_factory=list)
    stays: bool = False
    observed: str = ""

    @property
    def text(self) -> str:
        """The text of the lesson, as Markdown."""
        return (HERE / "lessons" / f"{self.slug}.md").read_text(encoding="utf-8")

    @property
    def instructions(self) -> str:
        """The instructions for the command, from the lesson's text; empty if it has none."""
        section = self.text.partition("## Run\n")[2].partition("\n## ")[0]
        return section.replace(f"    {self.command}\n", "").strip()

    @property
    def shipped(self) -> Path:
        """The path of the unsolved exercise."""
        return HERE / "exercises" / self.file

    def solved(self, solution: str = "") -> str:
        """Return the exercise with these lines between its marks, by default our solution."""
        text = self.shipped.read_text(encoding="utf-8")
        return MARKED_PART.sub(
            lambda match: match[1] + (solution or self.solution) + match[3], text
        )

    def option(self, letter: str) -> str:
        """Return the text of the option with this letter."""
        return self.options["abcdefgh".index(letter)]

    def words(self, code: str) -> Mapping[str, str]:
        """Return the texts of a refusal: its headline, its reason (`why`) and its question."""
        return self.refusals.get(code) or common()[code]


@cache
def lessons() -> dict[int, Lesson]:
    """Return every lesson by its number, in order."""
    return {table["number"]: Lesson(**table) for table in read_toml("lessons.toml")["lesson"]}


def common() -> Mapping[str, Mapping[str, str]]:
    """Return the texts of the refusals that any exercise can get, by code."""
    return dict(read_toml("lessons.toml")["common"])


@cache
def read_toml(name: str) -> dict[str, Any]:
    """Return the content of one of the workshop's TOML files."""
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))
