"""The facilitator's plans, the quiz and the glossary are complete and consistent.

A plan is a timetable of the workshop. Its parts are lessons, breaks and the like; a lesson has the
phases show, do (the exercise) and talk. The slack is time that is kept free at the end.
"""

import re
import shlex
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlsplit

import pytest

from loadtest.commands.main import parse
from loadtest.expected import EXPECTED
from loadtest.faults import FAULTS
from workshop.lessons import HERE, lessons
from workshop.teaching import (
    count_right_answers,
    format_phases,
    format_plan,
    quiz_questions,
    read_plans,
)

#: Length of a plan in minutes -> minimum minutes of slack, minimum number of breaks.
MIN_SLACK_AND_BREAKS = {45: (5, 0), 90: (10, 1), 180: (10, 2)}


def join_lines(lines: Iterable[str]) -> str:
    """Return the words of wrapped lines as one line."""
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("minutes", read_plans())
def test_plan_adds_up_and_has_slack_and_breaks(minutes: int) -> None:
    """The parts and the slack add up to the plan's length. The slack is the last part printed."""
    plan = read_plans()[minutes]
    min_slack, min_breaks = MIN_SLACK_AND_BREAKS[minutes]
    assert sum(part_minutes for part_minutes, *_ in plan["parts"]) + plan["slack"] == minutes
    assert plan["slack"] >= min_slack
    titles = [subject for _, subject, *_ in plan["parts"] if isinstance(subject, str)]
    assert sum(title.startswith("break") for title in titles) >= min_breaks
    lines = [join_lines([line]) for line in format_plan(minutes)]
    line_before_end = lines[lines.index(f"{minutes} end") - 1]
    slack_begins_at = minutes - plan["slack"]
    assert line_before_end.startswith(f"{slack_begins_at} {plan['slack']} min slack:")


@pytest.mark.parametrize("minutes", read_plans())
def test_plan_contains_the_advice_for_a_late_room(minutes: int) -> None:
    """The advice tells a facilitator which parts to drop when time runs short."""
    plan = read_plans()[minutes]
    text = join_lines(format_plan(minutes))
    assert len(plan["behind"]) >= 3
    for advice in plan["behind"]:
        assert advice in text


def list_lesson_parts(minutes: int) -> list[tuple[int, dict[str, int]]]:
    """Return the minutes of each lesson in a plan, and the lesson's table in plans.toml.

    The table has the number of the `lesson`, and the minutes of its phases show, do and talk.
    """
    return [
        (part_minutes, subject)
        for part_minutes, subject, *_ in read_plans()[minutes]["parts"]
        if isinstance(subject, dict)
    ]


@pytest.mark.parametrize("minutes", [90, 180])
def test_advice_for_pairs_is_printed_if_they_do_the_exercise(minutes: int) -> None:
    """If a plan omits the exercise, a general line with the label `late` replaces the advice."""
    for _, lesson_table in list_lesson_parts(minutes):
        lesson = lessons()[lesson_table["lesson"]]
        text = join_lines(format_phases(lesson, lesson_table))
        has_exercise = lesson_table["do"] > 0
        assert (lesson.late in text) == has_exercise
        assert (lesson.fast in text) == has_exercise
        assert "late" in text


@pytest.mark.parametrize("minutes", [90, 180])
def test_minutes_of_a_lesson_add_up(minutes: int) -> None:
    """Each part of a plan is a lesson with three phases: show, do and talk.

    The minutes of the phases add up to the minutes of the part.
    """
    for part_minutes, lesson_table in list_lesson_parts(minutes):
        assert sum(lesson_table[phase] for phase in ("show", "do", "talk")) == part_minutes


def test_plan_has_times_of_day_and_labels() -> None:
    """The plan of 180 minutes begins at 9:15 and contains every lesson except lesson 12."""
    text = "\n".join(format_plan(180, beginning=9 * 60 + 15))
    assert text.count("\n 9:15") == text.count("\n12:15 end") == 1
    for label in ("show", "do", "talk", "late", "fast"):
        assert text.count(f" {label} ") >= 9, label
    for number in lessons():
        assert number == 12 or f"/?lesson={number}&answer" in text


def assert_command_exists(command: str) -> None:
    """Assert that a command in a plan exists: `make doctor`, or `make NAME ARGS='...'`."""
    make, target, *make_arguments = shlex.split(command)
    assert make == "make"
    arguments = shlex.split(" ".join(make_arguments).removeprefix("ARGS="))
    if target == "workshop" and arguments:
        workshop_command, question_number = arguments
        assert workshop_command == "quiz"
        assert 1 <= int(question_number) <= len(quiz_questions())
    elif target not in ("doctor", "workshop"):
        options = parse([target, *arguments], None)
        assert set(getattr(options, "locks", ())) <= set(EXPECTED)
        assert set(getattr(options, "faults", ())) <= set(FAULTS)


def assert_address_exists(address: str) -> None:
    """Assert that an address in a plan, such as /?lock=none#steps, exists on the shop's page."""
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query))
    assert int(query.pop("lesson", "1")) in lessons()
    assert query.pop("lock", "none") in EXPECTED
    assert query == {}
    assert parts.fragment in ("", "steps")


@pytest.mark.parametrize("minutes", read_plans())
def test_commands_and_addresses_of_a_plan_exist(minutes: int) -> None:
    """In a plan a line that begins with `$` is a command, and one with `/` is an address."""
    plan = read_plans()[minutes]
    plan_lines = list(plan["before"])
    for _minutes, _subject, *lines_of_part in plan["parts"]:
        plan_lines += lines_of_part
    for line in plan_lines:
        if line.startswith("$ "):
            assert_command_exists(line.removeprefix("$ "))
        elif line.startswith("/"):
            assert_address_exists(line)


def test_there_are_plans_for_45_90_and_180_minutes() -> None:
    assert list(read_plans()) == [45, 90, 180]


@pytest.mark.parametrize("name", ["FACILITATOR.md", "SHEET.md", "README.md"])
def test_document_tells_how_to_open_the_page_on_a_phone(name: str) -> None:
    text = join_lines([(HERE / name).read_text("utf-8")])
    assert "phone" in text
    assert "the address under which your fork publishes the site" in text
    assert "http.server" in text


def test_facilitator_guide_covers_votes_reports_and_delays() -> None:
    """FACILITATOR.md contains the commands and terms that a facilitator needs."""
    text = (HERE / "FACILITATOR.md").read_text("utf-8")
    for words in (
        "votes=3,9,1,2",
        "report --json",
        "report --merge",
        "notes rush-stuck",
        "behind",
        "slack",
    ):
        assert words in text


def test_quiz_has_eight_questions_of_four_options() -> None:
    """Each question is answered in a lesson."""
    assert len(quiz_questions()) == 8
    for question in quiz_questions():
        assert len(question.options) == 4
        assert question.answer in "abcd"
        assert question.lesson in lessons()
    assert count_right_answers("".join(question.answer for question in quiz_questions())) == 8
    assert count_right_answers("") == 0


def test_right_answers_of_the_quiz_are_spread_over_the_options() -> None:
    answers = "".join(question.answer for question in quiz_questions())
    assert {letter: answers.count(letter) for letter in "abcd"} == dict.fromkeys("abcd", 2)


def test_glossary_has_at_least_twenty_terms_in_both_languages() -> None:
    """A row of GLOSSARY.md has a term in English and in Chinese, and its meaning."""
    glossary = (HERE / "GLOSSARY.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| .+ \|$", glossary, re.MULTILINE)
    chinese_by_english = {
        english: chinese for english, chinese in rows if english not in ("English", "---")
    }
    assert len(chinese_by_english) >= 20
    for chinese in chinese_by_english.values():
        assert re.search("[\u4e00-\u9fff]", chinese)  # a Chinese character
