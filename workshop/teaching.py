"""The commands for facilitators and authors: plan, notes, quiz, report, pack, observe."""

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
from workshop.lessons import Lesson, common, lessons, read_toml
from workshop.pack import pack
from workshop.progress import Progress
from workshop.render import WIDTH
from workshop.session import TypedLines


@dataclass(frozen=True, slots=True)
class Question:
    """One question of the quiz.

    answer  the letter of the right option
    lesson  the number of the lesson that the question is about
    """

    text: str
    options: list[str]
    answer: str
    lesson: int


@cache
def questions() -> list[Question]:
    """Return the eight questions that are asked before and after the workshop."""
    return [Question(**question) for question in read_toml("quiz.toml")["question"]]


def score(answers: str) -> int:
    """Return how many letters of these answers to the quiz are right."""
    return sum(
        answer == question.answer for answer, question in zip(answers, questions(), strict=False)
    )


#: The text of a plan's last part, which has no subject of its own.
SLACK = "slack: what went wrong until here; if nothing did, questions"


def plans() -> dict[int, dict[str, Any]]:
    """Return every plan by its length in minutes."""
    return {int(minutes): plan for minutes, plan in read_toml("plans.toml").items()}


def plan_lines(minutes: int, beginning: int | None = None) -> list[str]:
    """Return the lines of a plan.

    Each part has its beginning, its length and its subject, and below them what to say, type or
    open.

    minutes    the length of the plan
    beginning  in minutes since midnight; None: the plan counts from 0
    """
    plan = plans()[minutes]
    lines = [str(plan["title"])]
    for preparation in plan["before"]:
        lines += _wrapped("before        ", preparation)
    at = 0
    for part_minutes, subject, *details in plan["parts"] + [[plan["slack"], SLACK]]:
        start = f"{_clock(at, beginning):>5} {part_minutes:3} min  "
        indent = " " * len(start)
        if isinstance(subject, dict):
            lesson = lessons()[subject["lesson"]]
            details += phase_lines(lesson, subject)
            subject = f"lesson {lesson.number}, {lesson.title}"
        lines += _wrapped(start, subject)
        for detail in details:
            lines += _wrapped(indent, detail)
        at += part_minutes
    lines.append(f"{_clock(at, beginning):>5} end")
    for step in plan["behind"]:
        lines += _wrapped("behind        ", step)
    return lines


def _clock(at: int, beginning: int | None) -> str:
    """Return a minute of a plan as a time of day; the minute itself if no beginning is known."""
    if beginning is None:
        return str(at)
    hour, minute = divmod(beginning + at, 60)
    return f"{hour % 24}:{minute:02}"


def phase_lines(lesson: Lesson, part: dict[str, int]) -> list[str]:
    """Return the lines of a lesson in a plan: the minutes of its phases, and what to do when late.

    part  the lesson's entry in plans.toml: the minutes of `show`, `do` and `talk`
    """
    number = lesson.number
    phases = {
        "show": f"/?lesson={number}, vote; each pair: goto {number}, a letter, run",
        "do": f"{lesson.file}; for you: notes {number}",
        "talk": f'/?lesson={number}&answer  "{lesson.say}"',
    }
    lines = [f"{name:4} {part[name]:2}  {phases[name]}" for name in phases if part.get(name)]
    if part["do"]:
        lines += [f"late     {lesson.late}", f"fast     {lesson.fast}"]
    else:
        lines.append("late     only the vote and the sentence; its exercise stays for later")
    return lines


def _wrapped(start: str, text: str) -> list[str]:
    """Return the lines of `start` and a text, wrapped to WIDTH columns.

    The further lines are indented to the beginning of the text. Behind a label such as `late` they
    are indented to the end of the label.
    """
    if text.startswith("$"):  # a command to copy is never cut
        return [start + text]
    label = re.match(r"(show|do|talk|late|fast) +\d* *", text)
    indent = " " * (len(start) + (label.end() if label else 0))
    return textwrap.wrap(start + text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _without(
    codes: Sequence[str], refusals: Mapping[str, Mapping[str, str]]
) -> dict[str, Mapping[str, str]]:
    """Return the refusals that have none of these codes."""
    return {code: words for code, words in refusals.items() if code not in codes}


class CommandError(Exception):
    """A command is unknown, or cannot be run now. The message says what can be typed instead."""


class Teaching:
    """Runs the commands plan, notes, quiz, report, pack and observe. They raise CommandError."""

    def __init__(self, out: Console, progress: Progress, typed: TypedLines) -> None:
        self.out = out
        self.progress = progress
        self.typed = typed

    def do_plan(self, arguments: list[str]) -> None:
        """Show the plan of a length, with times of day if the beginning is given."""
        lengths = ", ".join(map(str, plans()))
        minutes = arguments[0] if arguments else ""
        when = arguments[1] if len(arguments) > 1 else ""
        clock = time.strftime("%H:%M") if when == "now" else when
        if minutes not in lengths.split(", ") or not re.fullmatch(r"|[0-2]?\d:[0-5]\d", clock):
            raise CommandError(
                f"plan takes a length in minutes ({lengths}) and a beginning: plan 90 14:00"
            )
        hour, _, minute = clock.partition(":")
        beginning = int(hour) * 60 + int(minute) if clock else None
        self.out.print("\n".join(plan_lines(int(minutes), beginning)), soft_wrap=True)

    def do_notes(self, arguments: list[str]) -> None:
        """Show the answers of all lessons and of the quiz, or notes on a lesson or a refusal."""
        if not arguments:
            for lesson in lessons().values():
                self._show_answer(lesson)
            self.out.print(f"quiz {''.join(question.answer for question in questions())}")
        elif not arguments[0].isdecimal():
            self._show_notes_of_a_refusal(arguments[0].lower())
        elif int(arguments[0]) in lessons():
            self._show_notes_of_a_lesson(lessons()[int(arguments[0])])
        else:
            raise CommandError(
                f"there is no lesson {arguments[0]}: {min(lessons())} to {max(lessons())}"
            )

    def _show_notes_of_a_lesson(self, lesson: Lesson) -> None:
        self._show_answer(lesson)
        self._show("objective: ", lesson.objective)
        for point in lesson.key_points:
            self._show("key point: ", point)
        for letter, belief in lesson.misconceptions.items():
            self._show(f"who says {letter} may believe: ", belief)
        self._show("say: ", lesson.say)
        if lesson.likely:
            self.out.print("likely refusals:")
        self._show_refusals({code: lesson.words(code) for code in lesson.likely})
        for number, hint in enumerate(lesson.hints, 1):
            self._show(f"hint {number}: ", hint)
        self.out.print(f"solution of {lesson.file}:\n{lesson.solution}")
        self.out.print("its other refusals:")
        self._show_refusals(_without(lesson.likely, lesson.refusals))
        self.out.print("\nrefusals that any exercise can get:")
        self._show_refusals(_without(lesson.likely + list(lesson.refusals), common()))

    def _show_notes_of_a_refusal(self, code: str) -> None:
        """Show the notes on a refusal in each of its lessons.

        Raises CommandError if no refusal has this code.
        """
        notes: dict[str, Mapping[str, str]] = {
            f"lesson {lesson.number}, {code}": lesson.refusals[code]
            for lesson in lessons().values()
            if code in lesson.refusals
        }
        if code in common():
            notes[f"any lesson, {code}"] = common()[code]
        if not notes:
            codes = set(common()).union(*(lesson.refusals for lesson in lessons().values()))
            similar = ", ".join(get_close_matches(code, codes)) or "it is on the pair's screen"
            raise CommandError(
                f"notes takes a lesson's number or a refusal's first word: {similar}"
            )
        self._show_refusals(notes)

    def _show_refusals(self, words_by_title: Mapping[str, Mapping[str, str]]) -> None:
        for title, words in words_by_title.items():
            self._show(f"{title}: ", words["why"])
            self._show("    ask: ", words["question"])

    def _show_answer(self, lesson: Lesson) -> None:
        answer = lesson.option(lesson.answer)
        self._show(f"lesson {lesson.number:2}  {lesson.answer}: ", answer)

    def _show(self, label: str, text: str) -> None:
        """Show a label and a text, with the further lines indented to the end of the label."""
        indent = " " * len(label)
        self.out.print(textwrap.fill(label + text, self.out.width, subsequent_indent=indent))

    def do_quiz(self, arguments: list[str]) -> None:
        """Ask the eight questions; with a number, show that question, without its answer.

        The first answers are kept as `before`, all later ones as `after`.
        """
        count = len(questions())
        if arguments and arguments[0].isdecimal():
            if not 1 <= int(arguments[0]) <= count:
                raise CommandError(f"the quiz has the questions 1 to {count}")
            self._show_question(questions()[int(arguments[0]) - 1])
            return
        if arguments:
            answers = arguments[0].lower()
            if len(answers) != count or set(answers) - set("abcd-"):
                raise CommandError(f"give {count} letters, a to d, or - for no idea")
        elif sys.stdin.isatty():
            answers = "".join(self._ask(question) for question in questions())
        else:
            raise CommandError("quiz takes eight letters where there is no terminal: quiz ab-dcab-")
        self.progress.keep_quiz_answers(answers)
        self.out.print(f"{score(answers)} of {count}")

    def _show_question(self, question: Question) -> None:
        self.out.print(f"\n{question.text}")
        for letter, option in zip("abcd", question.options, strict=True):
            self.out.print(f"  {letter}  {option}")

    def _ask(self, question: Question) -> str:
        self._show_question(question)
        return self.typed.letter("> ", "abcd") or "-"

    def do_report(self, arguments: list[str]) -> None:
        """Show the results of the quiz, the lessons and their refusals.

        --json               print the report as JSON, without a name and without code
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
            self.out.print(json.dumps(self._report(), indent=1), soft_wrap=True)
            return
        for when, answers in self.progress.quiz.items():
            self.out.print(f"quiz {when}: {score(answers)} of {len(questions())}")
        if not self.progress.quiz:
            self.out.print("no quiz yet: quiz asks eight questions")
        render.show_list(self.out, self.progress)
        for lesson in lessons().values():
            if codes := self.progress.record_of(lesson)["codes"]:
                self._show(f"lesson {lesson.number} refused: ", ", ".join(codes))

    def _show_reports_of_the_room(self, patterns: Sequence[str]) -> None:
        try:
            reports = room_report.read_reports(patterns)
        except room_report.UnreadableReport as error:
            raise CommandError(str(error)) from error
        self.out.print(f"{len(reports)} report{'' if len(reports) == 1 else 's'}")
        for line in room_report.quiz_lines(reports):
            self.out.print(line)
        self.out.print(room_report.lessons_table(reports))

    def _report(self) -> dict[str, Any]:
        """Return the report for --json: the quiz, and prediction and tries of each lesson."""
        lines = []
        for lesson in lessons().values():
            record = self.progress.record_of(lesson)
            lines.append(
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
        quiz = {
            when: {"answers": answers, "right": score(answers), "of": len(questions())}
            for when, answers in self.progress.quiz.items()
        }
        return {"quiz": quiz, "lessons": lines}

    def do_pack(self, arguments: list[str]) -> None:
        """Make a folder with everything for a room without internet."""
        folder = Path(" ".join(arguments) or f"oversold-pack-{time.strftime('%Y-%m-%d')}")
        self.out.print(pack(folder.resolve()))

    def do_observe(self, arguments: list[str]) -> int:
        """Run the commands of all lessons, and write their figures into the lessons.

        Return 1 if the figures contradict the answer of a lesson.
        """
        observations = observe.observe()
        observe.write(observations)
        wrong = [
            lesson.number
            for lesson in lessons().values()
            if not observe.meets_expectation(lesson, observations)
        ]
        for number in wrong:
            self.out.print(f"lesson {number}: the observations contradict its `expect`")
        return 1 if wrong else 0
