"""The lessons, which are defined in lessons.toml."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: The letters of a lesson's options, in order. There are more than any lesson needs.
OPTION_LETTERS = "abcdefgh"
#: The part of an exercise that the participant changes, with the marks around it, which are the
#: comments `# TODO` and `# END`.
MARKED_PART = re.compile(
    r"(?P<todo_mark># TODO[^\n]*\n)(?P<solution>.*?)(?P<end_mark>[ ]*# END\n)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson. The comment at the top of lessons.toml explains most of its fields.

    number  the lesson's position, from 1
    slug    the name of its file in lessons/, without .md
    title   its heading
    """

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
    likely_refusals: list[str] = field(default_factory=list)
    runs_until_ended: bool = False
    observed: str = ""

    @property
    def text(self) -> str:
        """The text of the lesson, as Markdown."""
        return (HERE / "lessons" / f"{self.slug}.md").read_text(encoding="utf-8")

    @property
    def instructions(self) -> str:
        """The section Run of the lesson's text, without the command; empty if nothing is left."""
        section = self.text.partition("## Run\n")[2].partition("\n## ")[0]
        return section.replace(f"    {self.command}\n", "").strip()

    @property
    def unsolved_path(self) -> Path:
        """The path of the exercise as participants first get it, without a solution."""
        return HERE / "exercises" / self.file

    def make_solved_exercise(self, solution: str = "") -> str:
        """Return the text of the exercise with a solution between its marks.

        solution  the lines between the marks; empty: those of `self.solution`, a right solution
        """
        text = self.unsolved_path.read_text(encoding="utf-8")
        new_lines = solution or self.solution
        return MARKED_PART.sub(
            lambda match: match["todo_mark"] + new_lines + match["end_mark"], text
        )

    def get_option_text(self, letter: str) -> str:
        """Return the text of the option with this letter."""
        return self.options[OPTION_LETTERS.index(letter)]

    def get_refusal_texts(self, code: str) -> Mapping[str, str]:
        """Return the `headline`, the reason (`why`) and the `question` of a refusal.

        code  the refusal's name in lessons.toml
        """
        return self.refusals.get(code) or common_refusals()[code]


@cache
def lessons() -> dict[int, Lesson]:
    """Return every lesson by its number, in order."""
    return {table["number"]: Lesson(**table) for table in read_toml("lessons.toml")["lesson"]}


def find_lesson(number: str) -> Lesson | None:
    """Return the lesson with this number; None if there is none."""
    return lessons().get(int(number)) if number.isdecimal() else None


def describe_lesson_numbers() -> str:
    """Return the range of the lessons' numbers for a message, such as "1 to 12"."""
    return f"{min(lessons())} to {max(lessons())}"


def common_refusals() -> Mapping[str, Mapping[str, str]]:
    """Return the texts of the refusals that any exercise can get, by code."""
    return dict(read_toml("lessons.toml")["common"])


@cache
def read_toml(name: str) -> dict[str, Any]:
    """Return the content of one of the workshop's TOML files."""
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))
