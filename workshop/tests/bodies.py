"""Right and wrong solutions: the lines between the marks of their exercise.

bodies/ has one file per exercise. A line `=== right NAME` or `=== wrong NAME: CODE` begins a
solution; a wrong one must be refused with its code.
"""

import re
from pathlib import Path
from typing import NamedTuple

from workshop.lessons import Lesson, lessons

FOLDER = Path(__file__).parent / "bodies"
HEAD = re.compile(r"^=== (?:right (\w+)|wrong (\w+): ([a-z-]+))\n", re.MULTILINE)


class Body(NamedTuple):
    """A right or wrong solution of an exercise.

    code  the code of its refusal; empty if the solution is right
    text  the lines between the marks of the exercise
    """

    lesson: Lesson
    name: str
    code: str
    text: str

    @property
    def file(self) -> str:
        """The exercise with this solution between its marks."""
        return self.lesson.solved(self.text)

    def __str__(self) -> str:
        return f"{self.lesson.shipped_path.stem}/{self.name}"


def bodies(lesson: Lesson) -> list[Body]:
    """Return the solutions of a lesson's exercise in bodies/."""
    text = (FOLDER / f"{lesson.shipped_path.stem}.txt").read_text(encoding="utf-8")
    before, *sections = HEAD.split(text)
    assert not before.strip(), f"{lesson.shipped_path.stem}: {before[:60]!r} belongs to no solution"
    return [
        Body(lesson, right or wrong, code or "", body.strip("\n") + "\n")
        for right, wrong, code, body in zip(*(iter(sections),) * 4, strict=True)
    ]


ALL = [body for lesson in lessons().values() for body in bodies(lesson)]
SOLUTIONS = [Body(lesson, "solution", "", lesson.solution) for lesson in lessons().values()]
RIGHT = [body for body in ALL if not body.code]
WRONG = [body for body in ALL if body.code]
