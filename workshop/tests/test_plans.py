"""The facilitator's plans and the quiz hold what they say."""

import re
import shlex
from urllib.parse import parse_qsl, urlsplit

import pytest

from loadtest.commands.main import parse
from loadtest.expected import EXPECTED
from loadtest.faults import FAULTS
from workshop.lessons import HERE, lessons
from workshop.teaching import plan_lines, plans, questions, score


@pytest.mark.parametrize("minutes", plans())
def test_a_plan_takes_the_minutes_that_its_name_says(minutes: int) -> None:
    assert sum(takes for takes, *_ in plans()[minutes]["parts"]) == minutes
    assert plan_lines(minutes)[-1].split() == [str(minutes), "end"]


@pytest.mark.parametrize("minutes", [90, 180])
def test_the_minutes_of_a_lesson_are_those_in_which_it_is_shown_worked_and_talked_about(
    minutes: int,
) -> None:
    for takes, what, *_ in plans()[minutes]["parts"]:
        if isinstance(what, dict):
            assert what["show"] + what["do"] + what["talk"] == takes


def test_a_plan_says_by_the_clock_what_is_said_shown_left_out_and_next_for_the_fast() -> None:
    text = "\n".join(plan_lines(180, begins=9 * 60 + 15))
    assert text.count("\n 9:15") == text.count("\n12:15 end") == 1
    for label in ("show", "do", "talk", "late", "fast"):
        assert text.count(f" {label} ") >= 9, label
    for lesson in lessons().values():
        assert lesson.number == 12 or f"/?lesson={lesson.number}&answer" in text


@pytest.mark.parametrize("minutes", plans())
def test_what_a_plan_has_typed_or_opened_is_there(minutes: int) -> None:
    """A word of the workshop, a command that loadtest takes, or a page with its presets."""
    plan = plans()[minutes]
    for each in [*plan.get("before", ()), *(used for part in plan["parts"] for used in part[2:])]:
        if each in ("$ make doctor", "$ make workshop"):
            continue
        if each.startswith("$ make workshop ARGS="):
            word, *rest = shlex.split(shlex.split(each)[3].partition("=")[2])
            assert (word, rest[0].isdigit()) == ("quiz", True), each
        elif each.startswith("$ "):
            _, make, name, *arguments = shlex.split(each)
            assert make == "make"
            given = parse([name, *shlex.split(" ".join(arguments).partition("=")[2])], None)
            assert set(getattr(given, "locks", ())) <= set(EXPECTED)
            assert set(getattr(given, "faults", ())) <= set(FAULTS)
        elif each.startswith("/"):
            asked = dict(parse_qsl(urlsplit(each).query))
            assert int(asked.pop("lesson", "1")) in lessons()
            assert asked.pop("lock", "none") in EXPECTED
            assert asked == {}
            assert urlsplit(each).fragment in ("", "steps")


def test_there_are_plans_for_45_90_and_180_minutes() -> None:
    assert list(plans()) == [45, 90, 180]


def test_the_quiz_has_eight_questions_of_four_options_each_shown_in_a_lesson() -> None:
    assert len(questions()) == 8
    for question in questions():
        assert len(question.options) == 4
        assert question.answer in "abcd"
        assert question.lesson in lessons()
    assert score("".join(question.answer for question in questions())) == 8
    assert score("") == 0


def test_the_glossary_has_at_least_twenty_terms_in_both_languages() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| .+ \|$", (HERE / "GLOSSARY.md").read_text(), re.M)
    terms = [row for row in rows if row[0] not in ("English", "---")]
    assert len(terms) >= 20
    assert all(re.search("[\u4e00-\u9fff]", chinese) for _, chinese in terms)
