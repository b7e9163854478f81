"""The commands of a participant and a facilitator: their output and records. Needs no server.

commands.run("a") runs the line that a participant types, and returns the command's exit code. A
single letter is a prediction: the answer to the question of the current lesson.
"""

import io
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty
from typing import cast

import pytest
from rich.console import Console

from workshop import render
from workshop.__main__ import main
from workshop.checker import Checker
from workshop.commands import NOT_DONE_EXIT_CODE, Commands
from workshop.lessons import HERE, Lesson, common_refusals, lessons
from workshop.progress import REFUSALS_UNTIL_SOLUTION, DamagedProgress, Progress
from workshop.refusal import UNDECIDED, CheckResult, Refusal
from workshop.session import run_shell_command

#: The right answers to the questions in quiz.toml, and the same answers with a wrong last one.
RIGHT_QUIZ_ANSWERS = "abbcdcad"
SEVEN_RIGHT_QUIZ_ANSWERS = "abbcdcaa"


class UndecidedChecker:
    """A Checker on a machine that is too busy: every check is undecided."""

    def check(self, *_: object) -> CheckResult:
        return CheckResult(undecided_reason="crash: nothing to be seen")


@pytest.fixture
def out() -> Console:
    """Return a console of 80 columns that records its output until export_text()."""
    console = render.make_console()
    console.record = True
    console.width = 80
    return console


@pytest.fixture
def commands(out: Console, tmp_path: Path) -> Commands:
    """Return the commands of a new participant. Every check is undecided."""
    return Commands(out, Progress(tmp_path / "mine"), cast(Checker, UndecidedChecker()))


@pytest.fixture
def results_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder in which `run` looks for the results of the last run."""
    monkeypatch.setattr(render, "RESULTS", tmp_path)
    folder = tmp_path / "latest"
    folder.mkdir()
    return folder


def write_summary(folder: Path, *cells: Mapping[str, object]) -> None:
    """Write results of `make faults` with these cells. A cell is a strategy under a fault."""
    (folder / "summary.json").write_text(json.dumps({"runs": cells}))


def export_words(out: Console) -> str:
    """Return the output since the last export as one line, with a space between two words."""
    return " ".join(out.export_text().split())


#: A time before and a time after the results that a test writes, in seconds from now.
BEFORE_RESULTS_SECONDS = -60.0
AFTER_RESULTS_SECONDS = 60.0


def test_prediction_cannot_change_after_the_answer_was_shown(
    commands: Commands, out: Console
) -> None:
    """A single letter is short for a prediction: `b` stands for `predict b`."""
    assert commands.run("predict a") == commands.run("b") == 0
    commands.progress.mark_answer_seen(lessons()[1])
    assert commands.run("c") == NOT_DONE_EXIT_CODE
    assert "stays what it was" in out.export_text()
    assert commands.progress.get_record(lessons()[1])["predicted"] == "b"


def test_no_idea_is_listed_as_prediction(commands: Commands, out: Console) -> None:
    commands.progress.record_prediction(lessons()[1], "")
    assert commands.run("LIST") == 0  # capitals do not matter
    assert "no idea" in out.export_text()


def test_repeated_undecided_check_counts_as_a_refusal(commands: Commands, out: Console) -> None:
    """The same code is checked four times, and each check is undecided.

    The first check does not count. The other three count as refusals, so after them the participant
    may see the solution. The field `codes` has the code of each refusal, such as `undecided`.
    """
    record = commands.progress.get_record(lessons()[1])
    assert commands.run("check") == UNDECIDED
    assert "Type check to try again" in out.export_text()
    assert record["tries"] == 0
    for _ in range(REFUSALS_UNTIL_SOLUTION):
        commands.run("check")
    assert "Twice undecided with the same code" in out.export_text()
    assert record["tries"] == REFUSALS_UNTIL_SOLUTION
    assert record["codes"] == ["undecided"] * REFUSALS_UNTIL_SOLUTION
    assert commands.run("solution") == 0


def test_undecided_check_of_changed_code_does_not_count(commands: Commands) -> None:
    """The second of two undecided checks counts as a try only if the code is the same."""
    commands.run("check")
    commands.progress.get_own_copy(lessons()[1]).write_text("SELLS_TWICE = 'ABABAB'\n")
    commands.run("check")
    assert commands.progress.get_record(lessons()[1])["tries"] == 0


def test_undecided_check_after_a_refusal_does_not_count(commands: Commands, out: Console) -> None:
    """The same code is checked three times: undecided, refused, undecided."""
    commands.run("check")
    commands.progress.record_check(lessons()[1], "todo")
    out.export_text()
    commands.run("check")
    assert "Type check to try again" in out.export_text()
    assert commands.progress.get_record(lessons()[1])["codes"] == ["todo"]


@pytest.mark.parametrize(
    ("topic", "example"),
    [
        ("redis", "self.client.pttl"),
        ("lua", "ARGV[1]"),
        ("sell_one", "sell_one(attempt, read=read)"),
    ],
)
def test_help_shows_a_section_of_the_sheet(
    commands: Commands, out: Console, topic: str, example: str
) -> None:
    """`help TOPIC` shows the section of SHEET.md on something that exercises use."""
    assert commands.run(f"help {topic}") == 0
    assert example in out.export_text()


def test_help_refuses_an_unknown_topic(commands: Commands) -> None:
    assert commands.run("help everything") == NOT_DONE_EXIT_CODE


def test_reset_all_begins_anew_and_keeps_the_files(commands: Commands) -> None:
    commands.run("goto 3")
    file = commands.progress.get_own_copy(lessons()[3])
    file.write_text("# mine\n")
    assert commands.run("reset all") == 0
    assert commands.progress.lesson.number == 1
    assert not file.exists()
    [backup] = file.parent.parent.glob(f"mine-*/{file.name}")
    assert backup.read_text() == "# mine\n"


def test_session_and_second_terminal_keep_each_others_changes(commands: Commands) -> None:
    """A second terminal and an open session change progress.json in turn. No change is lost.

    The second terminal answers the quiz, goes to lesson 5 and takes a hint. The session predicts
    `a`.
    """
    commands.run("goto 3")
    second_progress = Progress(commands.progress.folder)
    second_progress.record_quiz_answers("abcdabcd")
    second_progress.go_to(5)
    assert commands.progress.lesson.number == 5
    commands.run("predict a")
    assert Progress(commands.progress.folder).quiz == {"before": "abcdabcd"}
    second_progress.take_next_hint(lessons()[5])
    record = Progress(commands.progress.folder).get_record(lessons()[5])
    assert (record["predicted"], record["hints"]) == ("a", 1)


def test_prediction_is_kept_if_progress_changes_meanwhile(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While `run` asks for a prediction, a hint in a second terminal changes progress.json."""
    monkeypatch.setattr("workshop.commands.run_shell_command", lambda command, should_end=None: 0)
    monkeypatch.setattr(sys, "stdin", Keyboard(b""))
    commands.run("goto 3")

    def take_hint_and_answer(*_: object) -> str:
        Progress(commands.progress.folder).take_next_hint(lessons()[3])
        return "a"

    monkeypatch.setattr(commands.typed_lines, "ask_letter", take_hint_and_answer)
    assert commands.run("run") == 0  # without a prediction, it would return NOT_DONE_EXIT_CODE
    record = Progress(commands.progress.folder).get_record(lessons()[3])
    assert (record["predicted"], record["hints"]) == ("a", 1)


def test_progress_damaged_during_a_session_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The session ends when progress.json cannot be read any more."""

    def damage_and_list(commands: Commands) -> None:
        commands.run("goto 3")
        commands.progress.path.write_text("{")
        commands.run("list")

    monkeypatch.setattr(Commands, "run_session", damage_and_list)
    assert run_main(monkeypatch, tmp_path) == NOT_DONE_EXIT_CODE
    assert "correct it, or remove it" in " ".join(capsys.readouterr().out.split())


def test_run_shows_the_first_story(out: Console, results_folder: Path) -> None:
    """A story is the timeline of an error under a fault. The first cell has none."""
    write_summary(
        results_folder,
        {"lock": "token", "fault": "late-release", "story": []},
        {"lock": "setpx-del", "fault": "late-release", "story": ["0.1 s  A stops", "0.2 s  B"]},
    )
    render.show_story(out, time.time() + BEFORE_RESULTS_SECONDS)
    text = out.export_text()
    assert "setpx-del under late-release:" in text
    assert "A stops" in text


def test_run_without_new_results_shows_no_story(out: Console, results_folder: Path) -> None:
    """A story is the timeline of an error under a fault. `run` shows no story of an earlier run.

    The results in the folder are older than this run.
    """
    write_summary(results_folder, {"lock": "setnx", "fault": "crash", "story": ["0.1 s  A"]})
    render.show_story(out, time.time() + AFTER_RESULTS_SECONDS)
    assert out.export_text() == ""


@pytest.mark.parametrize("verdict", ["deadlock", "oversold"])
def test_deadlock_is_explained_only_if_a_run_has_one(
    verdict: str, out: Console, results_folder: Path
) -> None:
    """`run` explains the word `deadlock` only if a strategy had this verdict.

    A story is the timeline of an error under a fault. The first text is below every story.
    """
    write_summary(
        results_folder,
        {"lock": "setnx", "fault": "crash", "verdict": verdict, "story": ["0.1 s  A"]},
    )
    render.show_story(out, time.time() + BEFORE_RESULTS_SECONDS)
    text = export_words(out)
    assert "order numbers are shared by all strategies" in text
    assert ("a lock that is never released" in text) == (verdict == "deadlock")


def test_file_that_differs_only_in_blank_lines_is_the_solution(
    commands: Commands, out: Console
) -> None:
    """`solution` says that this file is the same. For other code, it shows a diff."""
    lesson = lessons()[2]
    commands.run("goto 2")
    commands.progress.record_check(lesson, None)  # a pass, so that the solution can be seen
    file = commands.progress.get_own_copy(lesson)
    file.write_text(lesson.make_solved_exercise().replace("\n\n\ndef", "\n\ndef"))
    out.export_text()
    assert commands.run("solution") == 0
    assert out.export_text() == "your file is the same as our solution\n"
    file.write_text(lesson.make_solved_exercise().replace("orders - initial", "-left"))
    commands.run("solution")
    assert "+    return max(0, orders - initial)" in out.export_text()


def test_run_without_a_story_shows_the_evidence(out: Console, results_folder: Path) -> None:
    """If nothing went wrong under a fault, `run` shows the evidence that the fault happened.

    A story is the timeline of an error, so there is none here.
    """
    evidence = "10 replies to COMMIT were dropped; 10 buyers got it replayed"
    cell = {"lock": "row-lock", "fault": "unknown-commit", "evidence": evidence}
    write_summary(results_folder, cell)
    render.show_story(out, time.time() + BEFORE_RESULTS_SECONDS)
    assert evidence in export_words(out)


def test_terms_of_a_story_are_explained(out: Console, results_folder: Path) -> None:
    """A story is the timeline of an error under a fault. GLOSSARY.md explains its terms, too."""
    cell = {"lock": "token", "fault": "slow", "story": ["0.1 s  victim (node A) has the lock"]}
    write_summary(results_folder, cell)
    render.show_story(out, time.time() + BEFORE_RESULTS_SECONDS)
    text = out.export_text()
    glossary = (HERE / "GLOSSARY.md").read_text("utf-8")
    for word in ("victim", "rival", "node", "healed", "expected"):
        assert word in text
        assert word in glossary


@pytest.mark.parametrize("number", lessons())
def test_notes_of_a_lesson_have_answer_questions_and_solution(
    number: int, commands: Commands, out: Console
) -> None:
    """The likely refusals come first, in the order in which lessons.toml lists them."""
    lesson = lessons()[number]
    assert commands.run(f"notes {number}") == 0
    text = out.export_text()
    assert f"{lesson.answer}: " in text
    assert lesson.solution.splitlines()[0] in text
    for note in (lesson.objective, *lesson.key_points, *lesson.misconceptions.values()):
        assert note in " ".join(text.split())
    assert text.count("ask:") == len({*lesson.refusals, *common_refusals()})
    labels = [line.partition(":")[0] for line in text.splitlines()]
    likely_positions = [labels.index(code) for code in lesson.likely_refusals]
    assert likely_positions == sorted(likely_positions)
    assert max(likely_positions, default=0) < labels.index("other refusals of the exercise")


@pytest.mark.parametrize(
    ("beginning", "is_time"), [("9:05", True), ("23:59", True), ("24:00", False)]
)
def test_plan_begins_at_a_valid_time_of_day(
    commands: Commands, out: Console, beginning: str, is_time: bool
) -> None:
    commands.run(f"plan 90 {beginning}")
    is_refused = "plan takes a length in minutes" in out.export_text()
    assert is_refused == (not is_time)


def test_notes_without_a_number_have_one_answer_per_lesson(
    commands: Commands, out: Console
) -> None:
    assert commands.run("notes") == 0
    assert out.export_text().count("lesson ") == len(lessons())


@pytest.mark.parametrize(
    ("code", "details", "text"),
    [
        (
            "not-atomic-renewal",
            {"command": 1, "pttl": 60000},
            "between your command 1 and the next one the lock changed hands",
        ),
        (
            "not-like-the-others",
            {
                "fault": "slow",
                "missing": "the fault had no visible effect",
                "control": "token-watchdog",
            },
            "it had its effect on `token-watchdog`",
        ),
    ],
)
def test_refusal_text_contains_the_details_of_the_mistake(
    code: str, details: dict[str, object], text: str, out: Console
) -> None:
    """The refusal's texts in lessons.toml have placeholders for these details."""
    render.show_result(out, lessons()[7], CheckResult(Refusal(code, details)), "ex07.py")
    assert text in out.export_text()


def test_story_is_shown_without_markup(out: Console) -> None:
    """A story is the timeline of a check, in lines of text.

    With markup, Rich would replace [red] by a colour and :key: by an emoji.
    """
    details = {"command": 1, "pttl": 60000}
    refusal = Refusal("not-atomic-renewal", details, story=("sent [red] :key:",))
    render.show_result(out, lessons()[7], CheckResult(refusal), "ex07.py")
    assert " sent [red] :key:\n" in out.export_text()


class Keyboard(io.TextIOWrapper):
    """A stdin that is a terminal. It has the typed bytes, and then ends, as after Ctrl-D."""

    def __init__(self, typed: bytes) -> None:
        super().__init__(io.BytesIO(typed), encoding="utf-8")

    def isatty(self) -> bool:
        return True


def test_nothing_is_kept_if_the_input_ends(
    commands: Commands, out: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input ends after one answer of the quiz. `predict` and `run` get no answer at all."""
    monkeypatch.setattr(sys, "stdin", Keyboard(b"c\n"))
    assert commands.run("quiz") == NOT_DONE_EXIT_CODE
    assert commands.progress.quiz == {}
    assert commands.run("predict") == commands.run("run") == NOT_DONE_EXIT_CODE
    assert commands.progress.get_record(lessons()[1])["predicted"] is None
    assert "no answer is kept" in out.export_text()


def _press_ctrl_c(*_: object) -> str:
    """Replace TypedLines.ask_letter() for a participant who presses Ctrl-C."""
    raise KeyboardInterrupt


def test_ctrl_c_leaves_the_quiz_but_not_the_session(
    commands: Commands, out: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside a session, Ctrl-C ends the whole process. In a session it ends only the quiz."""
    monkeypatch.setattr(sys, "stdin", Keyboard(b""))
    monkeypatch.setattr(commands.typed_lines, "ask_letter", _press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        commands.run("quiz")
    commands.in_a_session = True
    assert commands.run("quiz") == NOT_DONE_EXIT_CODE
    assert commands.progress.quiz == {}
    assert "its answers are not kept" in out.export_text()


def test_first_screen_mentions_hint_and_help(commands: Commands, out: Console) -> None:
    commands.introduce_lesson()
    assert "Type hint for a hint, quiz for eight questions" in out.export_text()


def test_invalid_utf8_does_not_end_the_session(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line with an invalid byte is typed. The next line, `goto 3`, is still run."""
    monkeypatch.setattr(sys, "stdin", Keyboard(b"\xb2\ngoto 3\n"))
    commands.run_session()
    assert commands.progress.lesson.number == 3


@pytest.mark.parametrize("command", ["goto", "notes", "quiz"])
def test_superscript_is_not_a_number(commands: Commands, command: str) -> None:
    """str.isdigit() is true for a superscript, but int() refuses it."""
    assert commands.run(f"{command} \N{SUPERSCRIPT TWO}") == NOT_DONE_EXIT_CODE


def test_check_is_undecided_if_the_file_cannot_be_copied(
    commands: Commands, out: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder for the copy of the participant's file is missing."""
    # An undecided check runs servers.doctor, whose output is not needed here.
    monkeypatch.setattr("workshop.checker.subprocess.run", lambda *_, **__: None)
    with (tmp_path / "log").open("wb") as log:
        checker = Checker(out, log)
        checker.close()  # removes the folder of the copy
        result = checker.check(lessons()[1], commands.progress.get_own_copy(lessons()[1]))
    assert result.exit_code == UNDECIDED
    assert result.refusal is None


def test_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    """The participant's folder, `mine`, cannot be read, because it is a file."""
    (tmp_path / "mine").touch()
    with pytest.raises(DamagedProgress):
        Progress(tmp_path / "mine")


def test_report_as_json_has_what_a_facilitator_collects(commands: Commands, out: Console) -> None:
    commands.run(f"quiz {SEVEN_RIGHT_QUIZ_ANSWERS}")
    commands.run("goto 3")
    commands.run("predict b")
    commands.progress.record_check(lessons()[3], "always-true")
    commands.progress.record_check(lessons()[3], None)
    out.export_text()
    assert commands.run("report --json") == 0
    report = json.loads(out.export_text())
    quiz_before = {"answers": SEVEN_RIGHT_QUIZ_ANSWERS, "right": 7, "of": 8}
    assert report["quiz"] == {"before": quiz_before}
    assert [lesson["number"] for lesson in report["lessons"]] == list(lessons())
    first_lesson, _, third_lesson, *_ = report["lessons"]
    assert third_lesson.pop("passed_at") is not None
    assert third_lesson == {
        "number": 3,
        "title": "A lock in one process",
        "predicted": "b",
        "answer": "b",
        "tries": 2,
        "hints": 0,
        "refused": ["always-true"],
    }
    assert first_lesson["predicted"] is None
    assert first_lesson["passed_at"] is None
    assert commands.run("report json") == NOT_DONE_EXIT_CODE


def write_report(folder: Path, pair: str, *refusal_codes: str, quiz_answers: str = "") -> None:
    """Write the report of a pair that has passed lesson 3 after these refusals.

    A pair is the participants at one laptop. A pair without refusals predicted the right answer,
    any other pair a wrong one.

    pair  the name of the report's file, without .json
    """
    out = render.make_console()
    out.record = True
    commands = Commands(out, Progress(folder / pair), cast(Checker, UndecidedChecker()))
    lesson = lessons()[3]
    assert lesson.answer == "b"
    commands.progress.record_prediction(lesson, "a" if refusal_codes else "b")
    for code in refusal_codes:
        commands.progress.record_check(lesson, code)
    commands.progress.record_check(lesson, None)
    if quiz_answers:
        commands.progress.record_quiz_answers(quiz_answers)
    commands.run("report --json")
    (folder / f"{pair}.json").write_text(out.export_text())


def test_reports_of_a_room_are_added_up(commands: Commands, out: Console, tmp_path: Path) -> None:
    """Two pairs did the quiz, with 8 and 7 right answers. No pair has begun lesson 4.

    In lesson 3 the pairs passed at the first, third and second try: 6 tries in all.
    """
    write_report(tmp_path, "pair-1", quiz_answers=RIGHT_QUIZ_ANSWERS)
    write_report(
        tmp_path,
        "pair-2",
        "always-true",
        "check-then-set",
        quiz_answers=SEVEN_RIGHT_QUIZ_ANSWERS,
    )
    write_report(tmp_path, "pair-3", "always-true")
    out.export_text()
    assert commands.run(f"report --merge {tmp_path}/pair-*.json") == 0
    lines = [" ".join(line.split()) for line in out.export_text().splitlines()]
    assert lines[:2] == ["3 reports", "quiz before: 7.5 of 8 right on average, in 2 reports"]
    [row] = [line for line in lines if line.startswith("3 A lock in one")]
    assert " 1 of 3 3 6 always-true 2" in row  # predicted right, solved, tries, refusals
    assert "check-then-set 1" in " ".join(lines)
    assert [line for line in lines if line.startswith("4 ")] == []


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"quiz": {}, "lessons": [{"number": 99}]}'])
def test_file_that_is_not_a_report_is_refused(
    commands: Commands, out: Console, tmp_path: Path, text: str
) -> None:
    (tmp_path / "pair-1.json").write_text(text)
    assert commands.run(f"report --merge {tmp_path}/pair-1.json") == NOT_DONE_EXIT_CODE
    assert "pair-1.json is not the output of report --json" in export_words(out)


def test_merge_without_a_file_is_refused(commands: Commands, out: Console, tmp_path: Path) -> None:
    assert commands.run(f"report --merge {tmp_path}/none-*.json") == NOT_DONE_EXIT_CODE
    assert "does not exist" in export_words(out)
    assert commands.run("report --merge") == NOT_DONE_EXIT_CODE


def run_main(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    """Run `python -m workshop` in this process, for a new participant. Return the exit code."""
    monkeypatch.setattr(sys, "argv", ["workshop", *arguments])
    monkeypatch.setattr("workshop.__main__.LOG", folder / "workshop.log")
    monkeypatch.setattr("workshop.__main__.Progress", lambda: Progress(folder / "mine"))
    monkeypatch.setattr("workshop.__main__.end_on", lambda *signals: None)
    return main()


def test_merge_takes_a_path_with_a_space(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_report(tmp_path, "pair 1")
    capsys.readouterr()
    assert run_main(monkeypatch, tmp_path, "report", "--merge", f"{tmp_path}/pair 1.json") == 0
    assert capsys.readouterr().out.startswith("1 report\n")


def test_report_as_json_works_without_a_session(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_main(monkeypatch, tmp_path, "report", "--json") == 0
    assert json.loads(capsys.readouterr().out)["quiz"] == {}


@pytest.mark.parametrize("answers", ["-bcdabcd", "--cdabcd", "--------", "abcdabc-"])
def test_quiz_answers_may_begin_with_a_hyphen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: str
) -> None:
    """A hyphen means "no idea". argparse would take a word with a leading hyphen for an option."""
    assert run_main(monkeypatch, tmp_path, "quiz", answers) == 0
    assert Progress(tmp_path / "mine").quiz == {"before": answers}


@pytest.mark.parametrize(
    "words",
    [
        ["quiz", "-x"],
        ["list", "-bcdabcd"],  # these answers are valid for `quiz` only
        ["report", "--jsonn"],
    ],
)
def test_unknown_option_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    with pytest.raises(SystemExit):
        run_main(monkeypatch, tmp_path, *words)


class PassingChecker:
    """A Checker for which every exercise passes.

    checked_names  the names of the checked files
    """

    def __init__(self) -> None:
        self.checked_names: list[str] = []

    def check(self, lesson: Lesson, file: Path) -> CheckResult:
        self.checked_names.append(file.name)
        return CheckResult()


def test_wrong_prediction_is_explained(
    commands: Commands, out: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` shows the belief behind a wrong prediction. `explain` ends with the key points."""
    monkeypatch.setattr("workshop.commands.run_shell_command", lambda command, should_end=None: 0)
    lesson = lessons()[3]
    commands.run("goto 3")
    commands.run("predict a")
    out.export_text()
    assert commands.run("run") == 0
    text = export_words(out)
    assert lesson.misconceptions["a"] in text
    assert "off: a verdict that is not the one recorded" in text  # from render.TABLE_GLOSSARY
    commands.run("explain")
    assert lesson.key_points[-1] in export_words(out)


def test_check_with_a_number_checks_that_lesson(out: Console, tmp_path: Path) -> None:
    """`check 3` checks the file of lesson 3, although lesson 4 is the current one."""
    checker = PassingChecker()
    commands = Commands(out, Progress(tmp_path / "mine"), cast(Checker, checker))
    commands.run("goto 4")
    assert commands.run("check 3") == 0
    assert checker.checked_names == [lessons()[3].file]
    assert commands.progress.has_passed(lessons()[3])
    assert not commands.progress.has_passed(lessons()[4])


def test_save_during_a_run_is_checked(
    out: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The participant saves the exercise while the command of lesson 1 runs."""
    checker = PassingChecker()
    commands = Commands(out, Progress(tmp_path / "mine"), cast(Checker, checker))
    monkeypatch.setattr(sys, "stdin", Keyboard(b""))
    monkeypatch.setattr(commands.typed_lines, "read_line", _type_nothing)
    lesson = lessons()[1]

    def save_while_it_runs(command: str, should_end: Callable[[], bool]) -> int:
        commands.progress.get_own_copy(lesson).write_text(lesson.make_solved_exercise())
        # should_end() polls for saved files. A file counts as saved after two equal polls.
        assert [should_end(), should_end()] == [False, False]
        return 0

    monkeypatch.setattr("workshop.commands.run_shell_command", save_while_it_runs)
    commands.in_a_session = True
    commands.introduce_lesson()
    commands.run("predict c")
    assert commands.run("run") == 0
    assert checker.checked_names == [lesson.file]


def _type_nothing(timeout_seconds: float) -> str:
    """Replace TypedLines.read_line() for a participant who types nothing."""
    raise Empty


def test_reset_with_a_number_resets_that_lesson(commands: Commands) -> None:
    """The current lesson is 4. `reset 3` does not change the current lesson or its file."""
    commands.run("goto 4")
    file_of_lesson_3 = commands.progress.get_own_copy(lessons()[3])
    file_of_lesson_3.write_text("# of lesson 3\n")
    file_of_lesson_4 = commands.progress.get_own_copy(lessons()[4])
    file_of_lesson_4.write_text("# of lesson 4\n")
    assert commands.run("reset 3") == 0
    assert file_of_lesson_3.read_text() == lessons()[3].unsolved_path.read_text()
    assert file_of_lesson_4.read_text() == "# of lesson 4\n"
    assert commands.progress.lesson.number == 4


@pytest.mark.parametrize(
    "line",
    [
        "check 13",
        "check lesson",
        "reset lesson",
        "reset 3 4",
        "next 5",
        "run 3",
        "page 2",
        "hint x",
        "solution 0",
        "explain all",
        "list 3",
    ],
)
def test_command_with_a_wrong_argument_is_refused(commands: Commands, line: str) -> None:
    """A refused command changes nothing."""
    commands.run("goto 4")
    file = commands.progress.get_own_copy(lessons()[4])
    assert commands.run(line) == NOT_DONE_EXIT_CODE
    assert commands.progress.lesson.number == 4
    assert commands.progress.get_record(lessons()[4])["hints"] == 0
    assert list(file.parent.glob("*.bak*")) == []


def test_reset_keeps_the_backups_of_earlier_resets(commands: Commands) -> None:
    file = commands.progress.get_own_copy(lessons()[1])
    for text in ("first", "second", "third"):
        file.write_text(text)
        assert commands.run("reset") == 0
    backups = file.parent.glob(f"{file.name}.bak*")
    assert sorted(backup.read_text() for backup in backups) == ["first", "second", "third"]


def test_run_and_explain_show_the_instructions(
    commands: Commands, out: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instructions say what to click. `run` shows them while the page is open."""
    monkeypatch.setattr(sys, "stdin", Keyboard(b""))
    monkeypatch.setattr("workshop.commands.run_shell_command", lambda command, should_end=None: 0)
    commands.run("predict c")
    out.export_text()
    assert commands.run("run") == 0
    assert "Press New round" in out.export_text()
    commands.run("explain")
    text = out.export_text()
    assert "Press New round" in text
    assert "What if" in text


def test_notes_include_the_refusals_common_to_all_exercises(
    commands: Commands, out: Console
) -> None:
    assert commands.run("notes 3") == 0
    text = out.export_text()
    for code in common_refusals():
        assert f"{code}: " in text


def test_notes_of_a_refusal_show_the_question_of_each_lesson(
    commands: Commands, out: Console
) -> None:
    """The refusal `always-true` exists in lessons 3 and 4, each time with its own question."""
    assert commands.run("notes rush-stuck") == 0
    assert common_refusals()["rush-stuck"]["question"] in export_words(out)
    assert commands.run("notes always-true") == 0
    text = export_words(out)
    for number in (3, 4):
        assert lessons()[number].refusals["always-true"]["question"] in text


def test_notes_show_placeholders_without_their_format(commands: Commands, out: Console) -> None:
    """A text in lessons.toml has {longest_ttl:g}, for instance. The notes show <longest_ttl>."""
    assert commands.run("notes 12") == 0
    text = export_words(out)
    assert "a lock may live for <longest_ttl> s at most" in text
    assert "The fault `<fault>` hit a buyer inside your code: <title>." in text


def test_notes_of_a_mistyped_code_suggest_a_similar_one(commands: Commands, out: Console) -> None:
    assert commands.run("notes rush-stick") == NOT_DONE_EXIT_CODE
    assert "rush-stuck" in out.export_text()


def test_make_does_not_print_the_folder_that_it_enters(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`make workshop` sets MAKELEVEL, with which another make prints the folder it enters."""
    monkeypatch.setenv("MAKELEVEL", "1")
    assert run_shell_command("make --dry-run doctor") == 0
    assert "directory" not in capfd.readouterr().out
