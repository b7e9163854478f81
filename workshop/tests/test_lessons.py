"""The lessons, their files and their words fit each other. Needs no server."""

import ast
import re

import pytest
from rich.console import Console

from shop.errors import Busy, ShopError
from workshop import render
from workshop.checks import answers
from workshop.checks.answers import BELIEFS
from workshop.lessons import Lesson, common, lessons
from workshop.tests.bodies import RIGHT, SOLUTIONS, WRONG

SECTIONS = ["Question", "Run", "Observe", "Explain", "Exercise", "What if"]
EACH = pytest.mark.parametrize("lesson", lessons().values(), ids=lambda lesson: lesson.slug)


@EACH
def test_a_lesson_has_its_text_its_options_and_three_hints(lesson: Lesson) -> None:
    assert re.findall(r"^## (.*)$", lesson.text, re.MULTILINE) == SECTIONS
    assert lesson.text.startswith(f"# {lesson.number}. {lesson.title}\n")
    assert lesson.question in " ".join(lesson.text.split())
    assert lesson.command in lesson.text
    assert len(lesson.options) == 4
    assert lesson.answer in "abcd"
    assert len(lesson.hints) == 3


@EACH
def test_the_exercise_is_marked_short_and_unsolved(lesson: Lesson) -> None:
    shipped = lesson.shipped.read_text(encoding="utf-8")
    assert shipped.count("# TODO") == shipped.count("# END") == 1
    code = re.sub(r'""".*?"""', "", shipped, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 25


@EACH
def test_three_right_solutions_look_different(lesson: Lesson) -> None:
    right = [each for each in (*SOLUTIONS, *RIGHT) if each.lesson is lesson]
    assert len({ast.dump(ast.parse(each.file)) for each in right}) >= 3


@EACH
def test_the_text_before_a_prediction_gives_no_answer(lesson: Lesson) -> None:
    """What `explain` shows without a prediction: the question, and the command."""
    out = Console(record=True, width=80)
    render.show_text(out, lesson, whole=False)
    before = out.export_text()
    assert re.findall("Observe|Explain|Exercise|What if", before) == []
    assert ("Question" in before, "Predict first" in before) == (True, True)
    render.show_text(out, lesson, whole=True)
    assert "What if" in out.export_text()


@EACH
def test_every_refusal_has_a_wrong_solution_and_every_wrong_solution_a_refusal(
    lesson: Lesson,
) -> None:
    codes = {each.code for each in WRONG if each.lesson is lesson} | {next(iter(lesson.refusals))}
    codes |= set(BELIEFS.values()) & set(lesson.refusals)
    assert set(lesson.refusals) <= codes, "a code without a body that is refused with it"
    assert codes <= set(lesson.refusals) | set(common()), "a body whose code has no words"


@EACH
def test_words_of_a_refusal_are_a_headline_a_reason_and_a_question(lesson: Lesson) -> None:
    for words in (*lesson.refusals.values(), *common().values()):
        assert set(words) == {"headline", "why", "question"}
        assert words["question"].endswith(("?", "."))
        assert "solution" not in words["question"]


def test_an_answer_gets_lost_after_a_busy_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[ShopError | None] = [Busy(), None, None]

    def check_out(attempt: object) -> None:
        if error := said.pop(0):
            raise error

    monkeypatch.setattr(answers, "check_out", check_out)
    keys = {"busy": "k", "unknown": "k"}
    assert answers._shops(lambda outcome, key: keys.get(outcome)) == ["busy", "unknown", "sold"]
