"""The facilitator's plans and the quiz are complete and consistent."""

import re
import shlex
from urllib.parse import parse_qsl, urlsplit

import pytest

from loadtest.commands.main import parse
from loadtest.expected import EXPECTED
from loadtest.faults import FAULTS
from workshop.lessons import HERE, lessons
from workshop.teaching import format_phases, format_plan, plans, questions, score

#: Plan -> the smallest allowed minutes of slack and number of breaks.
MIN_SLACK_AND_BREAKS = {45: (5, 0), 90: (10, 1), 180: (10, 2)}


@pytest.mark.parametrize("minutes", plans())
def test_plan_takes_its_minutes_with_slack_and_breaks(minutes: int) -> None:
    plan = plans()[minutes]
    slack, breaks = MIN_SLACK_AND_BREAKS[minutes]
    assert sum(takes for takes, *_ in plan["parts"]) + plan["slack"] == minutes
    assert plan["slack"] >= slack
    titles = [subject for _, subject, *_ in plan["parts"] if isinstance(subject, str)]
    assert sum(title.startswith("break") for title in titles) >= breaks
    lines = [line.split() for line in format_plan(minutes)]
    end = lines.index([str(minutes), "end"])
    begins = str(minutes - plan["slack"])
    assert lines[end - 1][:4] == [begins, str(plan["slack"]), "min", "slack:"]


@pytest.mark.parametrize("minutes", plans())
def test_plan_says_in_which_order_to_drop_what(minutes: int) -> None:
    plan = plans()[minutes]
    text = " ".join(" ".join(format_plan(minutes)).split())
    assert len(plan["behind"]) >= 3
    for step in plan["behind"]:
        assert step in text


@pytest.mark.parametrize("minutes", [90, 180])
def test_plan_without_an_exercise_has_no_task_for_the_fast(minutes: int) -> None:
    for _, part, *_ in plans()[minutes]["parts"]:
        if isinstance(part, dict):
            lesson = lessons()[part["lesson"]]
            text = " ".join(" ".join(format_phases(lesson, part)).split())
            assert (lesson.late in text) == (lesson.fast in text) == bool(part["do"])
            assert "late" in text


@pytest.mark.parametrize("minutes", [90, 180])
def test_minutes_of_a_lesson_add_up(minutes: int) -> None:
    """The minutes to show, do and talk about a lesson add up to the minutes of its part."""
    for takes, subject, *_ in plans()[minutes]["parts"]:
        if isinstance(subject, dict):
            assert subject["show"] + subject["do"] + subject["talk"] == takes


def test_plan_is_a_timetable() -> None:
    """The plan has times of day, and the labels of each lesson's parts."""
    text = "\n".join(format_plan(180, beginning=9 * 60 + 15))
    assert text.count("\n 9:15") == text.count("\n12:15 end") == 1
    for label in ("show", "do", "talk", "late", "fast"):
        assert text.count(f" {label} ") >= 9, label
    for lesson in lessons().values():
        assert lesson.number == 12 or f"/?lesson={lesson.number}&answer" in text


@pytest.mark.parametrize("minutes", plans())
def test_commands_and_files_of_a_plan_exist(minutes: int) -> None:
    """Each detail of a plan is a command of the workshop or of loadtest, or an address."""
    plan = plans()[minutes]
    for detail in [*plan.get("before", ()), *(used for part in plan["parts"] for used in part[2:])]:
        if detail in ("$ make doctor", "$ make workshop"):
            continue
        if detail.startswith("$ make workshop ARGS="):
            word, *rest = shlex.split(shlex.split(detail)[3].partition("=")[2])
            assert (word, rest[0].isdigit()) == ("quiz", True), detail
        elif detail.startswith("$ "):
            _, make, name, *arguments = shlex.split(detail)
            assert make == "make"
            options = parse([name, *shlex.split(" ".join(arguments).partition("=")[2])], None)
            assert set(getattr(options, "locks", ())) <= set(EXPECTED)
            assert set(getattr(options, "faults", ())) <= set(FAULTS)
        elif detail.startswith("/"):
            query = dict(parse_qsl(urlsplit(detail).query))
            assert int(query.pop("lesson", "1")) in lessons()
            assert query.pop("lock", "none") in EXPECTED
            assert query == {}
            assert urlsplit(detail).fragment in ("", "steps")


def test_there_are_plans_for_45_90_and_180_minutes() -> None:
    assert list(plans()) == [45, 90, 180]


@pytest.mark.parametrize("name", ["FACILITATOR.md", "SHEET.md", "README.md"])
def test_document_says_how_to_follow_on_a_phone(name: str) -> None:
    text = " ".join((HERE / name).read_text("utf-8").split())
    assert "phone" in text
    assert "the address under which your fork publishes the site" in text
    assert "http.server" in text


def test_facilitator_reads_how_to_show_votes_and_to_collect_reports() -> None:
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
    assert len(questions()) == 8
    for question in questions():
        assert len(question.options) == 4
        assert question.answer in "abcd"
        assert question.lesson in lessons()
    assert score("".join(question.answer for question in questions())) == 8
    assert score("") == 0


def test_right_answers_of_the_quiz_are_spread_over_the_options() -> None:
    answers = "".join(question.answer for question in questions())
    assert {letter: answers.count(letter) for letter in "abcd"} == dict.fromkeys("abcd", 2)


def test_glossary_has_at_least_twenty_terms_in_both_languages() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| .+ \|$", (HERE / "GLOSSARY.md").read_text(), re.M)
    terms = [row for row in rows if row[0] not in ("English", "---")]
    assert len(terms) >= 20
    assert all(re.search("[\u4e00-\u9fff]", chinese) for _, chinese in terms)
