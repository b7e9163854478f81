"""The commands for facilitators and authors: plan, notes, quiz, report, pack, observe.

In a workshop the participants work in pairs, two at a laptop. A refusal is the reason why a check
did not accept a pair's exercise.
"""

import json
import re
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

from workshop import observe, render, room_report
from workshop.lessons import (
    Lesson,
    common_refusals,
    describe_lesson_numbers,
    find_lesson,
    lessons,
    read_toml,
)
from workshop.pack import PACK_PREFIX, pack
from workshop.progress import Progress
from workshop.render import MAX_COLUMNS
from workshop.session import TypedLines

#: The letters of the options of each question in the quiz.
QUIZ_LETTERS = "abcd"
#: The subject of a plan's last part.
SLACK = "slack: time for what went wrong; if nothing did, for questions"


@dataclass(frozen=True, slots=True)
class QuizQuestion:
    """One question of the quiz.

    answer  the letter of the right option
    lesson  the number of the lesson that the question is about
    """

    text: str
    options: list[str]
    answer: str
    lesson: int


@cache
def quiz_questions() -> list[QuizQuestion]:
    """Return the quiz: eight questions that are asked before and after the workshop."""
    return [QuizQuestion(**table) for table in read_toml("quiz.toml")["question"]]


def count_right_answers(answers: str) -> int:
    """Return the number of right answers to the quiz.

    answers  a letter for each question, in order; `-` for no idea
    """
    return sum(
        letter == question.answer
        for letter, question in zip(answers, quiz_questions(), strict=False)
    )


def read_plans() -> dict[int, dict[str, Any]]:
    """Return every plan (timetable) of the workshop by its length in minutes.

    The comment at the top of plans.toml explains the fields.
    """
    return {int(minutes): plan for minutes, plan in read_toml("plans.toml").items()}


def format_plan(minutes: int, beginning: int | None = None) -> list[str]:
    """Return a plan (timetable) of the workshop as lines of text.

    The first line of a part has its time, its length and its subject. The lines below tell the
    facilitator what to say, type or open.

    minutes    the length of the plan
    beginning  in minutes since midnight; None: the plan counts from 0
    """
    plan = read_plans()[minutes]
    lines = [str(plan["title"])]
    for preparation in plan["before"]:
        lines += _wrap("before        ", preparation)
    # A part is a list: its minutes, its subject (a text, or a lesson's table), and further lines.
    parts = plan["parts"] + [[plan["slack"], SLACK]]
    elapsed_minutes = 0
    for part_minutes, subject, *details in parts:
        start = f"{_format_time(elapsed_minutes, beginning):>5} {part_minutes:3} min  "
        indent = " " * len(start)
        if isinstance(subject, dict):
            lesson = lessons()[subject["lesson"]]
            details += format_phases(lesson, subject)
            subject = f"lesson {lesson.number}, {lesson.title}"
        lines += _wrap(start, subject)
        for detail in details:
            lines += _wrap(indent, detail)
        elapsed_minutes += part_minutes
    lines.append(f"{_format_time(elapsed_minutes, beginning):>5} end")
    for advice in plan["behind"]:
        lines += _wrap("behind        ", advice)
    return lines


def _format_time(elapsed_minutes: int, beginning: int | None) -> str:
    """Return the time of day that is `elapsed_minutes` after the beginning of a plan.

    Without a beginning, return the elapsed minutes instead.

    beginning  in minutes since midnight, or None
    """
    if beginning is None:
        return str(elapsed_minutes)
    hour, minute = divmod(beginning + elapsed_minutes, 60)
    return f"{hour % 24}:{minute:02}"


def format_phases(lesson: Lesson, phase_minutes: dict[str, int]) -> list[str]:
    """Return the lines of a lesson in a plan.

    The lines tell the facilitator what to do in each phase, and with pairs that are late or fast. A
    phase without minutes is left out. If the exercise (`do`) is left out, there is no line for fast
    pairs.

    phase_minutes  the minutes of the phases `show`, `do` and `talk`, as in plans.toml
    """
    number = lesson.number
    phases = {
        "show": f"/?lesson={number}, vote; each pair: goto {number}, a letter, run",
        "do": f"{lesson.file}; for you: notes {number}",
        "talk": f'/?lesson={number}&answer  "{lesson.say}"',
    }
    lines = [
        f"{name:4} {phase_minutes[name]:2}  {text}"
        for name, text in phases.items()
        if phase_minutes.get(name)
    ]
    if phase_minutes["do"]:
        lines += [f"late     {lesson.late}", f"fast     {lesson.fast}"]
    else:
        lines.append("late     only the vote and the sentence; its exercise stays for later")
    return lines


def _wrap(start: str, text: str) -> list[str]:
    """Return `start` and the text, wrapped into lines of at most MAX_COLUMNS columns.

    The text may begin with a label such as `late     `. All lines but the first are indented by the
    length of `start` and the label.
    """
    if text.startswith("$"):  # a command must stay on one line, so that it can be copied
        return [start + text]
    label = re.match(r"(show|do|talk|late|fast) +\d* *", text)
    label_length = label.end() if label else 0
    indent = " " * (len(start) + label_length)
    return textwrap.wrap(
        start + text, MAX_COLUMNS, subsequent_indent=indent, break_on_hyphens=False
    )


def _parse_time(text: str) -> int | None:
    """Return a time of day, such as 14:00 or `now`, in minutes since midnight.

    Return None if the text is not a time of day.
    """
    if text == "now":
        text = time.strftime("%H:%M")
    if not re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", text):
        return None
    hour, _, minute = text.partition(":")
    return int(hour) * 60 + int(minute)


def _omit_refusals(
    refusals: Mapping[str, Mapping[str, str]], codes: Sequence[str]
) -> dict[str, Mapping[str, str]]:
    """Return the texts of all refusals except those with these codes."""
    return {code: texts for code, texts in refusals.items() if code not in codes}


class CommandError(Exception):
    """A command is unknown, or cannot be run now. The message is advice on what to type instead."""


class FacilitatorCommands:
    """Runs the commands plan, notes, quiz, report, pack and observe.

    A command that cannot be run raises CommandError.
    """

    def __init__(self, out: Console, progress: Progress, typed_lines: TypedLines) -> None:
        self.out = out
        self.progress = progress
        self.typed_lines = typed_lines

    def do_plan(self, arguments: list[str]) -> None:
        """Show the plan for a length in minutes, with times of day if a beginning is given."""
        lengths = [str(minutes) for minutes in read_plans()]
        length = arguments[0] if arguments else ""
        beginning_text = arguments[1] if len(arguments) > 1 else ""
        beginning = _parse_time(beginning_text)
        if length not in lengths or (beginning_text and beginning is None):
            raise CommandError(
                f"plan takes a length in minutes ({', '.join(lengths)}) and a beginning: "
                "plan 90 14:00"
            )
        self.out.print("\n".join(format_plan(int(length), beginning)), soft_wrap=True)

    def do_notes(self, arguments: list[str]) -> None:
        """Show the answers of all lessons and of the quiz, or notes on a lesson or a refusal."""
        if not arguments:
            for lesson in lessons().values():
                self._show_answer(lesson)
            self.out.print(f"quiz {''.join(question.answer for question in quiz_questions())}")
        elif lesson_with_number := find_lesson(arguments[0]):
            self._show_notes_of_a_lesson(lesson_with_number)
        elif arguments[0].isdecimal():
            raise CommandError(
                f"there is no lesson {arguments[0]}; the lessons are {describe_lesson_numbers()}"
            )
        else:
            self._show_notes_of_a_refusal(arguments[0].lower())

    def _show_notes_of_a_lesson(self, lesson: Lesson) -> None:
        """Show a facilitator's notes on a lesson. Likely refusals come before the others."""
        self._show_answer(lesson)
        self._print_labelled("objective: ", lesson.objective)
        for point in lesson.key_points:
            self._print_labelled("key point: ", point)
        for letter, belief in lesson.misconceptions.items():
            self._print_labelled(f"participants who choose {letter} may believe: ", belief)
        self._print_labelled("say: ", lesson.say)
        if lesson.likely_refusals:
            self.out.print("likely refusals:")
        self._show_refusals(
            {code: lesson.get_refusal_texts(code) for code in lesson.likely_refusals}
        )
        for number, hint in enumerate(lesson.hints, 1):
            self._print_labelled(f"hint {number}: ", hint)
        self.out.print(f"solution of {lesson.file}:\n{lesson.solution}")
        self.out.print("other refusals of the exercise:")
        self._show_refusals(_omit_refusals(lesson.refusals, lesson.likely_refusals))
        self.out.print("\nrefusals that any exercise can get:")
        self._show_refusals(
            _omit_refusals(common_refusals(), [*lesson.likely_refusals, *lesson.refusals])
        )

    def _show_notes_of_a_refusal(self, code: str) -> None:
        """Show the notes on a refusal for each lesson that can refuse a file with this code.

        Raises CommandError if no refusal has this code.
        """
        texts_by_title: dict[str, Mapping[str, str]] = {
            f"lesson {lesson.number}, {code}": lesson.refusals[code]
            for lesson in lessons().values()
            if code in lesson.refusals
        }
        if code in common_refusals():
            texts_by_title[f"any lesson, {code}"] = common_refusals()[code]
        if not texts_by_title:
            codes = set(common_refusals())
            for lesson in lessons().values():
                codes.update(lesson.refusals)
            similar_codes = ", ".join(get_close_matches(code, codes))
            message = "notes takes a lesson's number, or the word after REFUSED on a pair's screen"
            raise CommandError(f"{message}, such as {similar_codes}" if similar_codes else message)
        self._show_refusals(texts_by_title)

    def _show_refusals(self, texts_by_title: Mapping[str, Mapping[str, str]]) -> None:
        """Show each refusal: its title, its reason, and the question to ask a pair."""
        for title, texts in texts_by_title.items():
            self._print_labelled(f"{title}: ", _replace_placeholders(texts["why"]))
            self._print_labelled("    ask: ", _replace_placeholders(texts["question"]))

    def _show_answer(self, lesson: Lesson) -> None:
        """Show the right answer to the lesson's question."""
        answer = lesson.get_option_text(lesson.answer)
        self._print_labelled(f"lesson {lesson.number:2}  {lesson.answer}: ", answer)

    def _print_labelled(self, label: str, text: str) -> None:
        """Print a label and a text, wrapped. All lines but the first are indented by the label."""
        indent = " " * len(label)
        self.out.print(textwrap.fill(label + text, self.out.width, subsequent_indent=indent))

    def do_quiz(self, arguments: list[str]) -> None:
        """Ask the eight questions, record the answers, and show how many are right.

        If the argument is eight letters, record them as the answers. If it is a number, only show
        the question with this number, without its answer.
        """
        question_count = len(quiz_questions())
        if arguments and arguments[0].isdecimal():
            number = int(arguments[0])
            if not 1 <= number <= question_count:
                raise CommandError(f"the quiz has the questions 1 to {question_count}")
            self._show_quiz_question(quiz_questions()[number - 1])
            return
        if arguments:
            answers = arguments[0].lower()
            if len(answers) != question_count or set(answers) - {*QUIZ_LETTERS, "-"}:
                raise CommandError(f"give {question_count} letters, a to d, or - for no idea")
        elif sys.stdin.isatty():
            answers = "".join(self._ask_quiz_question(question) for question in quiz_questions())
        else:
            raise CommandError("without a terminal, type the eight answers, as in quiz ab-dcab-")
        self.progress.record_quiz_answers(answers)
        self.out.print(f"{count_right_answers(answers)} of {question_count}")

    def _show_quiz_question(self, question: QuizQuestion) -> None:
        self.out.print(f"\n{question.text}")
        for letter, option in zip(QUIZ_LETTERS, question.options, strict=True):
            self.out.print(f"  {letter}  {option}")

    def _ask_quiz_question(self, question: QuizQuestion) -> str:
        """Ask a question of the quiz. Return the letter that is typed, or `-` for no idea."""
        self._show_quiz_question(question)
        return self.typed_lines.ask_letter("> ", QUIZ_LETTERS) or "-"

    def do_report(self, arguments: list[str]) -> None:
        """Show the results of the quiz and of the lessons, with all refusals.

        --json               print the report as JSON, which has no names and no code
        --merge pair-*.json  add up the reports of all pairs
        """
        if len(arguments) > 1 and arguments[0] == "--merge":
            self._show_reports_of_the_room(arguments[1:])
            return
        if arguments not in ([], ["--json"]):
            raise CommandError(
                "report takes no argument, --json, or --merge and the files of the pairs"
            )
        if arguments:
            self.out.print(json.dumps(self._make_report(), indent=1), soft_wrap=True)
            return
        for before_or_after, answers in self.progress.quiz.items():
            self.out.print(
                f"quiz {before_or_after}: {count_right_answers(answers)} of {len(quiz_questions())}"
            )
        if not self.progress.quiz:
            self.out.print("no quiz yet: type quiz to answer its eight questions")
        render.show_list(self.out, self.progress)
        for lesson in lessons().values():
            if codes := self.progress.get_record(lesson)["codes"]:
                self._print_labelled(f"lesson {lesson.number} refused: ", ", ".join(codes))

    def _show_reports_of_the_room(self, patterns: Sequence[str]) -> None:
        """Show the reports of all pairs in a room, added up.

        patterns  the paths of the reports, or patterns such as pair-*.json
        """
        try:
            reports = room_report.read_reports(patterns)
        except room_report.UnreadableReport as error:
            raise CommandError(str(error)) from error
        self.out.print(f"{len(reports)} report{'' if len(reports) == 1 else 's'}")
        for line in room_report.describe_quiz(reports):
            self.out.print(line)
        self.out.print(room_report.make_lessons_table(reports))

    def _make_report(self) -> dict[str, Any]:
        """Return the report that --json prints: the results of the quiz and of each lesson."""
        lesson_reports = []
        for lesson in lessons().values():
            record = self.progress.get_record(lesson)
            lesson_reports.append(
                {
                    "number": lesson.number,
                    "title": lesson.title,
                    "predicted": record["predicted"],
                    "answer": lesson.answer,
                    "tries": record["tries"],
                    "hints": record["hints"],
                    "refused": record["codes"],
                    "passed_at": record.get("passed_at"),
                }
            )
        # The quiz is taken before the workshop and again after it.
        quiz = {
            before_or_after: {
                "answers": answers,
                "right": count_right_answers(answers),
                "of": len(quiz_questions()),
            }
            for before_or_after, answers in self.progress.quiz.items()
        }
        return {"quiz": quiz, "lessons": lesson_reports}

    def do_pack(self, arguments: list[str]) -> None:
        """Make a folder with everything for a room without internet."""
        # The words of a path that contains spaces are separate arguments.
        folder = Path(" ".join(arguments) or f"{PACK_PREFIX}-{time.strftime('%Y-%m-%d')}")
        self.out.print(pack(folder.resolve()))

    def do_observe(self, arguments: list[str]) -> int:
        """Run the commands of all lessons, and write their results into the lessons' texts.

        Return 1 if the results contradict the right answer of a lesson.
        """
        observations = observe.observe()
        observe.write_observations(observations)
        exit_code = 0
        for lesson in lessons().values():
            if not observe.meets_expectation(lesson, observations):
                self.out.print(f"lesson {lesson.number}: the observations contradict its `expect`")
                exit_code = 1
        return exit_code


def _replace_placeholders(text: str) -> str:
    """Return the text of a refusal with `<pttl>` for a placeholder such as `{pttl:g}`."""
    return re.sub(r"\{(\w+)[^}]*\}", r"<\1>", text)
