"""The lessons, as lessons.toml has them."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: An exercise: its first mark, the part to change, its second mark.
MARKED = re.compile(r"(# TODO[^\n]*\n)(.*?)([ ]*# END\n)", re.DOTALL)


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
        """The lesson to read, Markdown."""
        return (HERE / "lessons" / f"{self.slug}.md").read_text(encoding="utf-8")

    @property
    def instructions(self) -> str:
        """The text's instructions for the command, as Markdown; empty if there are none."""
        section = self.text.partition("## Run\n")[2].partition("\n## ")[0]
        return section.replace(f"    {self.command}\n", "").strip()

    @property
    def shipped(self) -> Path:
        """The exercise as it begins."""
        return HERE / "exercises" / self.file

    def solved(self, solution: str = "") -> str:
        """The exercise with this between its marks; without one, our solution."""
        text = self.shipped.read_text(encoding="utf-8")
        return MARKED.sub(lambda marked: marked[1] + (solution or self.solution) + marked[3], text)

    def option(self, letter: str) -> str:
        """The text of an answer."""
        return self.options["abcdefgh".index(letter)]

    def words(self, code: str) -> Mapping[str, str]:
        """Headline, why and question of a refusal."""
        return self.refusals.get(code) or common()[code]


@cache
def lessons() -> dict[int, Lesson]:
    """Every lesson by its number, in order."""
    return {table["number"]: Lesson(**table) for table in toml("lessons.toml")["lesson"]}


def common() -> Mapping[str, Mapping[str, str]]:
    """The words of the refusals that any exercise can get."""
    return dict(toml("lessons.toml")["common"])


@cache
def toml(name: str) -> dict[str, Any]:
    """The content of one of the workshop's files."""
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))
