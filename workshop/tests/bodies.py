"""Right and wrong solutions of the exercises.

A solution is the lines that a participant writes between the marks of an exercise. bodies/ has one
file per exercise. A line `=== right NAME` or `=== wrong NAME: CODE` begins a solution. A wrong
solution must be refused with this code.
"""

import re
from pathlib import Path
from typing import NamedTuple

from workshop.lessons import Lesson, lessons

FOLDER = Path(__file__).parent / "bodies"
SOLUTION_HEAD_LINE = re.compile(
    r"^=== (?:right (?P<right>\w+)|wrong (?P<wrong>\w+): (?P<code>[a-z-]+))\n", re.MULTILINE
)


class Solution(NamedTuple):
    """A right or wrong solution of a lesson's exercise.

    name          its name, unique in the exercise
    refusal_code  the code of its refusal; empty if the solution is right
    body          the lines between the marks of the exercise
    """

    lesson: Lesson
    name: str
    refusal_code: str
    body: str

    @property
    def file_text(self) -> str:
        """The exercise with this solution between its marks."""
        return self.lesson.make_solved_exercise(self.body)

    def __str__(self) -> str:
        return f"{self.lesson.unsolved_path.stem}/{self.name}"


def read_solutions(lesson: Lesson) -> list[Solution]:
    """Read the right and the wrong solutions of a lesson's exercise from its file in bodies/."""
    file = FOLDER / f"{lesson.unsolved_path.stem}.txt"
    text = file.read_text(encoding="utf-8")
    head_lines = list(SOLUTION_HEAD_LINE.finditer(text))
    text_before = text[: head_lines[0].start()]
    assert not text_before.strip(), f"{file.name}: {text_before[:60]!r} belongs to no solution"
    # A solution ends where the next one begins.
    ends = [head_line.start() for head_line in head_lines[1:]] + [len(text)]
    return [
        Solution(
            lesson,
            name=head_line["right"] or head_line["wrong"],  # `right NAME` or `wrong NAME: CODE`
            refusal_code=head_line["code"] or "",
            body=text[head_line.end() : end].strip("\n") + "\n",
        )
        for head_line, end in zip(head_lines, ends, strict=True)
    ]


#: The solutions that participants can look at, by the command `solution`.
OUR_SOLUTIONS = [
    Solution(lesson, "solution", refusal_code="", body=lesson.solution)
    for lesson in lessons().values()
]
_SOLUTIONS_IN_BODIES = [
    solution for lesson in lessons().values() for solution in read_solutions(lesson)
]
OTHER_RIGHT_SOLUTIONS = [solution for solution in _SOLUTIONS_IN_BODIES if not solution.refusal_code]
WRONG_SOLUTIONS = [solution for solution in _SOLUTIONS_IN_BODIES if solution.refusal_code]
