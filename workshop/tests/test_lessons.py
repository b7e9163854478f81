"""The lessons, their files and their words fit each other. Needs no server."""

import ast
import re

import pytest
from rich.console import Console

from loadtest.stack.stack import ROOT
from shop.errors import LockBusy, ShopError
from workshop import render
from workshop.checks import answers
from workshop.checks.answers import BELIEFS
from workshop.lessons import HERE, Lesson, common_refusals, lessons
from workshop.tests.bodies import RIGHT, SOLUTIONS, WRONG

SECTIONS = ["Question", "Run", "Observe", "Explain", "Exercise", "What if"]
#: The buyers' moves, under one name on the page, in the exercise and in the lesson's question.
MOVES = ["read", "write", "commit"]
PAGE = ROOT / "demo" / "templates" / "demo" / "page.html"
EACH = pytest.mark.parametrize("lesson", lessons().values(), ids=lambda lesson: lesson.slug)


@EACH
def test_lesson_has_its_text_its_options_and_three_hints(lesson: Lesson) -> None:
    assert re.findall(r"^## (.*)$", lesson.text, re.MULTILINE) == SECTIONS
    assert lesson.text.startswith(f"# {lesson.number}. {lesson.title}\n")
    assert lesson.question in " ".join(lesson.text.split())
    assert lesson.command in lesson.text
    assert len(lesson.options) == 4
    assert lesson.answer in "abcd"
    assert len(lesson.hints) == 3


@EACH
def test_exercise_is_marked_short_and_unsolved(lesson: Lesson) -> None:
    shipped = lesson.shipped_path.read_text(encoding="utf-8")
    assert shipped.count("# TODO") == shipped.count("# END") == 1
    code = re.sub(r'""".*?"""', "", shipped, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 25


@EACH
def test_three_right_solutions_look_different(lesson: Lesson) -> None:
    right = [body for body in (*SOLUTIONS, *RIGHT) if body.lesson is lesson]
    assert len({ast.dump(ast.parse(body.file)) for body in right}) >= 3


@EACH
def test_text_before_a_prediction_gives_no_answer(lesson: Lesson) -> None:
    """Without a prediction, `explain` shows only the question and the command."""
    out = Console(record=True, width=80)
    render.show_text(out, lesson, whole=False)
    before = out.export_text()
    assert re.findall("Observe|Explain|Exercise|What if", before) == []
    assert ("Question" in before, "Predict first" in before) == (True, True)
    render.show_text(out, lesson, whole=True)
    assert "What if" in out.export_text()


@EACH
def test_refusals_and_wrong_solutions_match(
    lesson: Lesson,
) -> None:
    """Every refusal has a wrong solution, and every wrong solution a refusal."""
    codes = {body.code for body in WRONG if body.lesson is lesson} | {next(iter(lesson.refusals))}
    codes |= set(BELIEFS.values()) & set(lesson.refusals)
    assert set(lesson.refusals) <= codes, "a code without a body that is refused with it"
    assert codes <= set(lesson.refusals) | set(common_refusals()), "a body whose code has no words"


@EACH
def test_likely_refusals_are_at_most_five_that_the_lesson_has(lesson: Lesson) -> None:
    assert len(set(lesson.likely)) == len(lesson.likely) <= 5
    assert set(lesson.likely) <= {*lesson.refusals, *common_refusals()}


@EACH
def test_words_of_a_refusal_are_a_headline_a_reason_and_a_question(lesson: Lesson) -> None:
    for words in (*lesson.refusals.values(), *common_refusals().values()):
        assert set(words) == {"headline", "why", "question"}
        assert words["question"].endswith(("?", "."))
        assert "solution" not in words["question"]


def test_right_answers_of_the_lessons_are_spread_over_the_options() -> None:
    """After an hour of the same letter a pair votes it without reading."""
    answers = "".join(lesson.answer for lesson in lessons().values())
    assert {letter: answers.count(letter) for letter in "abcd"} == dict.fromkeys("abcd", 3)
    assert not re.search(r"(.)\1", answers), answers


@EACH
def test_lesson_has_objective_key_points_and_beliefs(
    lesson: Lesson,
) -> None:
    """Each wrong option has the belief behind it."""
    assert lesson.objective.endswith(".")
    assert 2 <= len(lesson.key_points) <= 4
    assert list(lesson.misconceptions) == [letter for letter in "abcd" if letter != lesson.answer]
    for text in (*lesson.key_points, *lesson.misconceptions.values()):
        assert text.endswith(".")


def test_page_exercise_and_question_have_the_same_moves() -> None:
    """A participant types the letters of the buttons that were pressed on the page."""
    track = re.search(r'<ol class="track">(.*?)</ol>', PAGE.read_text("utf-8"), re.DOTALL)
    assert track is not None
    assert re.findall(r"<li>(\w+)</li>", track[1]) == MOVES
    first = lessons()[1]
    assert ", ".join(MOVES) in first.question
    shipped = first.shipped_path.read_text(encoding="utf-8")
    assert re.search(".*".join(MOVES), shipped.partition("# TODO")[0], re.DOTALL)


@pytest.mark.parametrize(
    "path", ["lessons.toml", "FACILITATOR.md", "SHEET.md", "plans.toml", "lessons/01-two-buyers.md"]
)
def test_every_schedule_in_a_text_is_valid_for_the_exercise(path: str) -> None:
    schedules = re.findall(r"\b[AB]{4,}\b", (HERE / path).read_text("utf-8"))
    assert [schedule for schedule in schedules if sorted(schedule) != sorted("AAABBB")] == []


def test_answer_can_be_lost_after_a_busy_one(monkeypatch: pytest.MonkeyPatch) -> None:
    answers_in_turn: list[ShopError | None] = [LockBusy(), None, None]

    def check_out(attempt: object) -> None:
        if error := answers_in_turn.pop(0):
            raise error

    monkeypatch.setattr(answers, "check_out", check_out)
    keys = {"busy": "k", "unknown": "k"}
    assert answers._buy_until_done(lambda outcome, key: keys.get(outcome)) == [
        "busy",
        "unknown",
        "sold",
    ]
