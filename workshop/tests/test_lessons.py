"""The lessons, their exercises and the texts of their refusals fit each other. Needs no server."""

import ast
import re

import pytest
from rich.console import Console

from loadtest.stack.stack import ROOT
from shop.errors import LockBusy, ShopError
from workshop import render
from workshop.checks import answers
from workshop.checks.answers import REFUSAL_CODE_BY_CELL
from workshop.lessons import HERE, Lesson, common_refusals, lessons
from workshop.tests.bodies import OTHER_RIGHT_SOLUTIONS, OUR_SOLUTIONS, WRONG_SOLUTIONS

#: The headings of a lesson's text, in order.
SECTIONS = ["Question", "Run", "Observe", "Explain", "Exercise", "What if"]
#: The names of a buyer's moves in lesson 1, in order.
MOVES = ["read", "write", "commit"]
PAGE = ROOT / "demo" / "templates" / "demo" / "page.html"
EACH_LESSON = pytest.mark.parametrize("lesson", lessons().values(), ids=lambda lesson: lesson.slug)


@EACH_LESSON
def test_lesson_has_its_text_its_options_and_three_hints(lesson: Lesson) -> None:
    assert re.findall(r"^## (.*)$", lesson.text, re.MULTILINE) == SECTIONS
    assert lesson.text.startswith(f"# {lesson.number}. {lesson.title}\n")
    assert lesson.question in " ".join(lesson.text.split())
    assert lesson.command in lesson.text
    assert len(lesson.options) == 4
    assert lesson.answer in "abcd"
    assert len(lesson.hints) == 3


@EACH_LESSON
def test_exercise_is_short_unsolved_and_has_marks(lesson: Lesson) -> None:
    """An exercise has at most 25 lines of code. Its marks are the comments TODO and END.

    The participant writes the solution between the marks.
    """
    exercise = lesson.unsolved_path.read_text(encoding="utf-8")
    assert exercise.count("# TODO") == exercise.count("# END") == 1
    assert exercise != lesson.make_solved_exercise()
    code = re.sub(r'""".*?"""', "", exercise, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 25


@EACH_LESSON
def test_three_right_solutions_look_different(lesson: Lesson) -> None:
    """Solutions that differ only in comments and blank lines count as one."""
    syntax_trees = {
        ast.dump(ast.parse(solution.file_text))
        for solution in (*OUR_SOLUTIONS, *OTHER_RIGHT_SOLUTIONS)
        if solution.lesson is lesson
    }
    assert len(syntax_trees) >= 3


@EACH_LESSON
def test_explain_hides_the_answer_until_a_prediction(lesson: Lesson) -> None:
    """Without a prediction, `explain` shows only the question and the command."""
    out = Console(record=True, width=80)
    render.show_text(out, lesson, with_answer=False)
    text = out.export_text()
    assert "Question" in text
    assert "Predict first" in text
    assert re.findall("Observe|Explain|Exercise|What if", text) == []
    render.show_text(out, lesson, with_answer=True)
    assert "What if" in out.export_text()


@EACH_LESSON
def test_every_refusal_has_a_wrong_solution(lesson: Lesson) -> None:
    """The refusals in lessons.toml and the codes of the wrong solutions are the same."""
    codes = {solution.refusal_code for solution in WRONG_SOLUTIONS if solution.lesson is lesson}
    # The unsolved exercise gets the first refusal of the lesson.
    codes.add(next(iter(lesson.refusals)))
    # A wrong answer in lesson 10 gets one of these refusals (see exercises.py).
    codes |= set(REFUSAL_CODE_BY_CELL.values()) & set(lesson.refusals)
    assert set(lesson.refusals) <= codes, "no wrong solution has this code"
    assert codes <= {*lesson.refusals, *common_refusals()}, "no texts for this code"


@EACH_LESSON
def test_likely_refusals_are_at_most_five_of_the_lesson(lesson: Lesson) -> None:
    """A likely refusal is a refusal of the lesson, or one that any exercise can get."""
    assert len(set(lesson.likely_refusals)) == len(lesson.likely_refusals) <= 5
    assert set(lesson.likely_refusals) <= {*lesson.refusals, *common_refusals()}


@EACH_LESSON
def test_refusal_has_a_headline_a_reason_and_a_question(lesson: Lesson) -> None:
    """The question helps a pair to find the mistake, and does not point to the solution."""
    for texts in (*lesson.refusals.values(), *common_refusals().values()):
        assert set(texts) == {"headline", "why", "question"}
        assert texts["question"].endswith(("?", "."))
        assert "solution" not in texts["question"]


def test_right_answers_cannot_be_guessed_from_other_lessons() -> None:
    """Each letter is right in three lessons, and never in two lessons in a row."""
    answers = "".join(lesson.answer for lesson in lessons().values())
    assert [answers.count(letter) for letter in "abcd"] == [3, 3, 3, 3]
    assert not re.search(r"(.)\1", answers), answers


@EACH_LESSON
def test_lesson_has_objective_key_points_and_beliefs(lesson: Lesson) -> None:
    """`misconceptions` has the belief behind each wrong option."""
    assert lesson.objective.endswith(".")
    assert 2 <= len(lesson.key_points) <= 4
    assert list(lesson.misconceptions) == [letter for letter in "abcd" if letter != lesson.answer]
    for text in (*lesson.key_points, *lesson.misconceptions.values()):
        assert text.endswith(".")


def test_page_exercise_and_question_have_the_same_moves() -> None:
    """In lesson 1 a participant moves two buyers on the page, and types the order of the moves."""
    move_list = re.search(r'<ol class="track">(.*?)</ol>', PAGE.read_text("utf-8"), re.DOTALL)
    assert move_list is not None
    assert re.findall(r"<li>(\w+)</li>", move_list[1]) == MOVES
    lesson = lessons()[1]
    assert ", ".join(MOVES) in lesson.question
    exercise_text, _, _ = lesson.unsolved_path.read_text(encoding="utf-8").partition("# TODO")
    assert re.search(".*".join(MOVES), exercise_text, re.DOTALL)


@pytest.mark.parametrize(
    "path", ["lessons.toml", "FACILITATOR.md", "SHEET.md", "plans.toml", "lessons/01-two-buyers.md"]
)
def test_every_schedule_in_a_text_is_valid_for_the_exercise(path: str) -> None:
    """A schedule has three moves of each buyer. A word such as ABAABB in a text is a schedule."""
    schedules = re.findall(r"\b[AB]{4,}\b", (HERE / path).read_text("utf-8"))
    assert [schedule for schedule in schedules if sorted(schedule) != sorted("AAABBB")] == []


@pytest.mark.parametrize(
    "path",
    ["lessons.toml", "GLOSSARY.md", "lessons/10-two-masters.md", "exercises/ex12_your_own_shop.py"],
)
def test_claims_of_exactness_mention_db_failover(path: str) -> None:
    """No strategy is exact under the fault db-failover, so each claim must mention this fault."""
    text = " ".join((HERE / path).read_text("utf-8").split())
    claims = re.findall(r"exact (?:under every fault|in every column)[^;,|]*", text)
    assert [claim for claim in claims if "db-failover" not in claim] == []


def test_answer_to_the_first_sale_is_lost_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of lesson 9 loses the answer to the first request that sells a unit.

    Here the first request is refused as busy, so the answer to the second request is lost.
    """
    # The error of each request in order; None: the request succeeds.
    request_errors: list[ShopError | None] = [LockBusy(), None, None]

    def check_out(attempt: object) -> None:
        if error := request_errors.pop(0):
            raise error

    def next_key(outcome: str, key: str) -> str | None:
        return None if outcome == "sold" else key

    monkeypatch.setattr(answers, "check_out", check_out)
    assert answers._buy_until_done(next_key) == ["busy", "unknown", "sold"]
