"""The output in the participant's terminal: 80 columns, without colours in a pipe or a file."""

import json
import os
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from loadtest.commands.output import RESULTS, set_up_console
from loadtest.faults import fault_report
from loadtest.stack.stack import ROOT
from workshop.lessons import OPTION_LETTERS, Lesson, lessons
from workshop.progress import Progress
from workshop.refusal import COPY_NAME, CheckResult

#: The output has at most this number of columns.
MAX_COLUMNS = 80
#: A story, the timeline of a check or of a fault, is cut to this number of last lines. So a refusal
#: fits into a terminal of 24 lines.
MAX_STORY_LINES = 14
#: The output of the participant's code is cut to this number of last lines.
MAX_OUTPUT_LINES = 10
#: A command as it is typed, with an example of its argument -> its explanation.
HELP: Mapping[str, str] = {
    "predict a": "answer the question of this lesson, before you run it; Enter: no idea",
    "run": "see what happens, for real",
    "check": "check your file now (saving does it, too); check 3: the file of lesson 3",
    "page": "open the shop's page, on which you can choose your file as the lock `mine`",
    "hint": "a hint; each lesson has three",
    "next": "go to the next lesson",
    "goto 8": "go to any lesson",
    "help redis": "ten commands of Redis; help lua, help sell_one: what else exercises need",
    "list": "all lessons and how far you are",
    "explain": "the text of this lesson",
    "reset": "begin the exercise anew; your file is kept as .bak; reset 3: lesson 3",
    "solution": "our solution, after you have passed or after three refusals",
    "quiz": "eight questions, before and after the workshop; quiz 7 shows one of them to a room",
    "report": "your quiz, predictions and checks; report --json: the same for the facilitator to "
    "collect; for facilitators: report --merge pair-*.json adds up the collected reports",
    "plan 90": "for facilitators: the plan for 45, 90 or 180 minutes; plan 90 14:00: with times",
    "notes 5": "for facilitators: answer, beliefs and questions of a lesson; notes: all answers; "
    "notes rush-stuck: the notes on a refusal",
    "reset all": "for facilitators: begin all lessons anew, for the next room",
    "pack": "for facilitators: make a folder for a room without internet",
    "quit": "end the session and stop everything",
}


TABLE_GLOSSARY = (
    "off: a verdict that is not the one recorded for this strategy. More: workshop/GLOSSARY.md"
)
STORY_GLOSSARY = (
    "victim: the buyer whom the fault hits; rival: a buyer who comes meanwhile; node A, node B: "
    "the shop's two servers; order numbers are shared by all strategies of the run, so a missing "
    "number is not a lost order; healed: the fault is over; off, or not as expected: a verdict "
    "that is not the one recorded for this strategy. More: workshop/GLOSSARY.md"
)
DEADLOCK_GLOSSARY = "deadlock: here, a lock that is never released"
#: The message after two undecided checks of the same code in a row.
TWICE_UNDECIDED = (
    "Twice undecided with the same code, so the cause may be the code: what did not happen, and "
    "which line could prevent it? This check counts as a try. A busy machine can be the cause, "
    "too: run make doctor, and read the end of var/workshop.log."
)


def make_console() -> Console:
    """Return a console that prints text unchanged, even if it looks like Rich's markup.

    It prints colours only in a terminal, and only if NO_COLOR is not set.
    """
    set_up_console()  # stdout prints `?` for a character that its encoding lacks
    plain_console = Console(highlight=False, markup=False, emoji=False)
    if plain_console.width > MAX_COLUMNS or not plain_console.is_terminal:
        plain_console.width = MAX_COLUMNS
    return plain_console


def show_result(
    out: Console,
    lesson: Lesson,
    result: CheckResult,
    path: str,
    *,
    is_undecided_again: bool = False,
) -> None:
    """Show the result of a check.

    path                the path of the participant's file, as it is displayed
    is_undecided_again  whether the last check of the same code was undecided, too
    """
    if result.output.strip():
        out.print("your code printed:")
        out.print("\n".join(result.output.strip().splitlines()[-MAX_OUTPUT_LINES:]))
    if result.cells:
        for table in fault_report.make_tables(result.cells, out.width):
            out.print(table, markup=True)
        out.print(fault_report.make_column_legend(result.cells))
    if result.undecided_reason:
        out.print("UNDECIDED", style="bold yellow")
        out.print(result.undecided_reason)
        out.print(TWICE_UNDECIDED if is_undecided_again else "Type check to try again.")
        return
    refusal = result.refusal
    if refusal is None:
        out.print(f"PASSED  {lesson.title}", style="bold green")
        out.print(
            "Type explain for the lesson's text, solution for ours, next for the next lesson."
        )
        return
    texts = lesson.get_refusal_texts(refusal.code)
    headline = texts["headline"].format_map(refusal.details)
    why = texts["why"].format_map(refusal.details)
    out.print(f"REFUSED  {refusal.code}", style="bold red")
    # The checks read a copy of the participant's file, so the headline may have the copy's name.
    out.print(headline.replace(COPY_NAME, Path(path).name))
    _show_end_of_story(out, refusal.story)
    out.print(f"{why} {texts['question']}")
    out.print(f"Edit {path} and save, or type hint.")


def _show_end_of_story(out: Console, story: Sequence[str]) -> None:
    """Show the last MAX_STORY_LINES lines of a story, the timeline of a check or of a fault."""
    for line in story[-MAX_STORY_LINES:]:
        out.print(f" {line}")


def show_question(out: Console, lesson: Lesson, predicted: str | None) -> None:
    """Show the lesson's question with its options.

    predicted  the predicted letter; "" for no idea; None if there is no prediction yet
    """
    out.rule(f"Lesson {lesson.number}: {lesson.title}")
    out.print(lesson.question)
    for letter, option in zip(OPTION_LETTERS, lesson.options, strict=False):
        mark = " (your prediction)" if letter == predicted else ""
        out.print(f"  {letter}  {option}{mark}")


def show_instructions(out: Console, lesson: Lesson) -> None:
    """Show the instructions for the lesson's command, if it has any."""
    if lesson.instructions:
        out.print(Markdown(lesson.instructions))


def show_story(out: Console, started_at: float) -> None:
    """Show what happened in the run of `make faults` that is in results/latest.

    A cell is the result of one strategy under one fault. Its story is the timeline of what went
    wrong. Show the first story, or, if nothing went wrong, the evidence that the fault happened. On
    a desktop, also open the report in the browser.

    started_at  the time at which the run was started; older results are not shown
    """
    summary = RESULTS / "latest" / "summary.json"
    if not summary.exists() or summary.stat().st_mtime < started_at:
        return
    cells = json.loads(summary.read_text(encoding="utf-8"))["runs"]
    cell = next((cell for cell in cells if cell.get("story")), cells[0])
    out.print(f"\n{cell['lock']} under {cell['fault']}:")
    if cell.get("story"):
        _show_end_of_story(out, cell["story"])
        out.print(STORY_GLOSSARY, style="dim")
    else:
        out.print(f"the fault happened: {cell['evidence']}")
        out.print(TABLE_GLOSSARY, style="dim")
    if any(cell.get("verdict") == "deadlock" for cell in cells):
        out.print(DEADLOCK_GLOSSARY, style="dim")
    report = (summary.parent / "report.html").resolve()
    if out.is_terminal and (sys.platform == "darwin" or os.environ.get("DISPLAY")):
        webbrowser.open(report.as_uri())
    out.print(f"every timeline, to click through: {os.path.relpath(report, ROOT)}")


def show_list(out: Console, progress: Progress) -> None:
    """Show all lessons with the participant's progress."""
    table = Table(box=None, pad_edge=False)
    # The first two columns, a mark of the current lesson and the number, have no heading.
    for heading in ("", "", "lesson", "minutes", "predicted", "tries", "passed"):
        table.add_column(heading, no_wrap=True)
    for lesson in lessons().values():
        record = progress.get_record(lesson)
        table.add_row(
            ">" if lesson == progress.lesson else "",
            str(lesson.number),
            lesson.title,
            str(lesson.teach_minutes + lesson.exercise_minutes),
            _describe_prediction(record),
            str(record["tries"]),
            "yes" if progress.has_passed(lesson) else "",
        )
    out.print(table)


def _describe_prediction(record: Mapping[str, object]) -> str:
    """Return the text for the prediction in a lesson's record, for the list of lessons."""
    if record["predicted"] is None:
        return "-"
    if not record["predicted"]:
        return "no idea"
    return "right" if record["right"] else "wrong"


def show_text(out: Console, lesson: Lesson, *, with_answer: bool) -> None:
    """Show the text of a lesson.

    with_answer  False: stop before the section Observe, because it contains the answer
    """
    if with_answer:
        out.rule(f"Lesson {lesson.number}: {lesson.title}")
        points = "".join(f"- {point}\n" for point in lesson.key_points)
        text = lesson.text.partition("\n")[2]
        out.print(Markdown(f"{text}\n## Key points\n\n{points}"))
        return
    text_before_answer = lesson.text.partition("## Observe\n")[0]
    out.print(Markdown(text_before_answer))
    out.print("Predict first: type a letter, then run. (predict asks for one; Enter: no idea.)")
    out.print("After that, explain shows the whole text.")
