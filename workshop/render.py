"""What a participant reads in the terminal: 80 columns, plain where there is no terminal."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Mapping

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from loadtest.commands import terminal
from loadtest.faults import fault_report
from workshop.checker import Result
from workshop.lessons import Lesson, lessons
from workshop.progress import Progress

WIDTH = 80
#: Lines of a refusal at most.
LONGEST_STORY = 14
HELP: Mapping[str, str] = {
    "predict a": "answer the question of this lesson, before you run it; Enter: no idea",
    "run": "see what happens, for real",
    "check": "check your file now; a save does it too",
    "page": "the shop's page, on which your file is the lock mine: step it, rush it",
    "hint": "a hint; three a lesson",
    "next": "the next lesson",
    "goto 8": "any lesson",
    "list": "all lessons and how far you are",
    "explain": "the text of this lesson",
    "reset": "begin the exercise anew; your file is kept as .bak",
    "solution": "ours, after you have passed or after three refusals",
    "quiz": "eight questions, before and after; quiz 7 shows one of them to a room",
    "report": "your quiz, predictions and checks",
    "plan 90": "for facilitators: 45, 90 or 180 minutes",
    "pack": "for facilitators: a folder for a room without internet",
    "quit": "end; everything is stopped",
}


def console() -> Console:
    """Colours in a terminal alone, and never where NO_COLOR is set."""
    terminal.console()  # what the encoding of stdout lacks is printed in plain characters
    found = Console(highlight=False)
    if found.width > WIDTH or not found.is_terminal:
        found = Console(highlight=False, width=WIDTH)
    return found


def show_result(out: Console, lesson: Lesson, result: Result, name: str) -> None:
    """A passed exercise, a refusal, or why nothing could be decided."""
    if result.printed.strip():
        out.print("your code printed:")
        out.print("\n".join(result.printed.strip().splitlines()[-10:]), markup=False)
    if result.cells:
        for table in fault_report.tables(result.cells, out.width):
            out.print(table)
        out.print(fault_report.numbers(result.cells), highlight=False)
    if result.undecided:
        out.print("UNDECIDED", style="bold yellow")
        out.print(result.undecided, markup=False)
        out.print("This is not your code's fault. Type check to try again.")
        return
    if result.refusal is None:
        out.print(f"PASSED  {lesson.title}", style="bold green")
        out.print("explain shows the lesson's text, solution ours beside yours, next goes on.")
        return
    refusal = result.refusal
    words = lesson.words(refusal.code)
    out.print(f"REFUSED  {refusal.code}", style="bold red")
    out.print(headline(lesson, result), markup=False)
    for line in list(refusal.story)[-LONGEST_STORY:]:
        out.print(f" {line}", markup=False)
    out.print(f"{words['why']} {words['question']}", markup=False)
    out.print(f"Edit {name} and save, or type hint.", markup=False)


def headline(lesson: Lesson, result: Result) -> str:
    """The one line of a refusal, its facts filled in."""
    assert result.refusal is not None
    return lesson.words(result.refusal.code)["headline"].format_map(_Known(result.refusal.facts))


class _Known(dict[str, object]):
    """Facts by name; one that is not known is left out of the text."""

    def __missing__(self, key: str) -> str:
        return "?"


def show_question(out: Console, lesson: Lesson, predicted: str | None) -> None:
    """The question with its options."""
    out.rule(f"Lesson {lesson.number}: {lesson.title}")
    out.print(lesson.question, markup=False)
    for letter, option in zip("abcdefgh", lesson.options, strict=False):
        mark = " (your prediction)" if letter == predicted else ""
        out.print(f"  {letter}  {option}{mark}", markup=False)


def show_answer(out: Console, lesson: Lesson, letter: str) -> None:
    """After the run: the prediction beside what happened."""
    right = f"{lesson.answer}: {lesson.option(lesson.answer)}"
    if letter == lesson.answer:
        out.print(f"You predicted it: {right}.", style="green", markup=False)
    elif letter:
        out.print(f"You predicted {letter}; it is {right}.", markup=False)
    else:
        out.print(f"It is {right}.", markup=False)


def show_list(out: Console, progress: Progress) -> None:
    """All lessons."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "", "lesson", "minutes", "predicted", "tries", "passed"):
        table.add_column(column, no_wrap=True)
    for lesson in lessons().values():
        known = progress.of(lesson)
        table.add_row(
            ">" if lesson == progress.lesson else "",
            str(lesson.number),
            lesson.title,
            str(lesson.teach + lesson.exercise),
            "-" if known["right"] is None else ("right" if known["right"] else "wrong"),
            str(known["tries"]),
            "yes" if progress.passed(lesson) else "",
        )
    out.print(table)


def show_text(out: Console, lesson: Lesson, *, whole: bool) -> None:
    """The lesson to read; not `whole`: its question and what to run, without what comes of it."""
    if whole:
        out.print(Markdown(lesson.text))
        return
    out.print(Markdown(lesson.text.partition("## Observe\n")[0]))
    out.print("Predict first: type a letter (predict alone asks; Enter: no idea), then run.")
    out.print("After that explain shows the whole text.")


def show_solution(out: Console, lesson: Lesson, mine: str) -> None:
    """Ours, as a change of the participant's."""
    ours = lesson.solution.read_text(encoding="utf-8")
    diff = difflib.unified_diff(
        mine.splitlines(), ours.splitlines(), "yours", "ours", lineterm="", n=2
    )
    out.print("\n".join(diff) or "yours is ours, to the letter", markup=False)


def show_help(out: Console) -> None:
    """Every word that can be typed."""
    for word, what in HELP.items():
        out.print(hanging(f"  {word:10} ", what, out.width), markup=False)


def hanging(begins: str, text: str, width: int) -> str:
    """A text behind its beginning, its further lines indented as far."""
    return textwrap.fill(begins + text, width, subsequent_indent=" " * len(begins))
