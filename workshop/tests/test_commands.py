"""The records and the output of a session. Needs no server."""

import io
import json
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from workshop import render
from workshop.__main__ import main
from workshop.checker import Checker
from workshop.commands import Commands
from workshop.lessons import HERE, Lesson, common_refusals, lessons
from workshop.progress import REFUSALS_UNTIL_SOLUTION, DamagedProgress, Progress
from workshop.refusal import Refusal, Result
from workshop.session import run_shell_command


class Undecidable:
    """A Checker on a machine that is too busy: every check is undecided."""

    def check(self, *_: object) -> Result:
        return Result(undecided="crash: nothing to be seen")


@pytest.fixture
def out() -> Console:
    console = render.make_console()
    console.record, console.width = True, 80
    return console


@pytest.fixture
def commands(out: Console, tmp_path: Path) -> Commands:
    return Commands(out, Progress(tmp_path / "mine"), cast(Checker, Undecidable()))


def test_prediction_stays_once_the_answer_was_shown(commands: Commands, out: Console) -> None:
    assert commands.run("predict a") == commands.run("b") == 0
    commands.progress.mark_answer_seen(lessons()[1])
    assert commands.run("c") == 2
    assert "stays what it was" in out.export_text()
    assert commands.progress.record_of(lessons()[1])["predicted"] == "b"


def test_no_idea_is_listed_as_such(commands: Commands, out: Console) -> None:
    commands.progress.keep_prediction(lessons()[1], "")
    assert commands.run("LIST") == 0
    assert "no idea" in out.export_text()


def test_second_undecided_check_of_the_same_code_counts(commands: Commands, out: Console) -> None:
    record = commands.progress.record_of(lessons()[1])
    assert commands.run("check") == 2
    first = out.export_text()
    assert ("Type check to try again" in first, record["tries"]) == (True, 0)
    for _ in range(REFUSALS_UNTIL_SOLUTION):
        commands.run("check")
    assert "Twice undecided with the same code" in out.export_text()
    assert (record["tries"], record["codes"]) == (3, ["undecided"] * 3)
    assert commands.run("solution") == 0


def test_other_code_after_an_undecided_check_begins_anew(commands: Commands) -> None:
    commands.run("check")
    commands.progress.copy_of(lessons()[1]).write_text("SELLS_TWICE = 'ABABAB'\n")
    commands.run("check")
    assert commands.progress.record_of(lessons()[1])["tries"] == 0


def test_decided_check_ends_a_row_of_undecided_checks(commands: Commands, out: Console) -> None:
    """The same code can be decided, so the machine was the cause of the first undecided check."""
    commands.run("check")
    commands.progress.record_check(lessons()[1], "todo")
    out.export_text()
    commands.run("check")
    assert "Type check to try again" in out.export_text()
    assert commands.progress.record_of(lessons()[1])["codes"] == ["todo"]


@pytest.mark.parametrize(
    ("topic", "has"),
    [
        ("redis", "self.client.pttl"),
        ("lua", "ARGV[1]"),
        ("sell_one", "sell_one(attempt, read=read)"),
    ],
)
def test_sheet_explains_the_parts_of_an_exercise(
    commands: Commands, out: Console, topic: str, has: str
) -> None:
    assert commands.run(f"help {topic}") == 0
    assert has in out.export_text()
    assert commands.run("help everything") == 2


def test_reset_all_begins_anew_and_keeps_the_files(commands: Commands) -> None:
    commands.run("goto 3")
    mine = commands.progress.copy_of(lessons()[3])
    mine.write_text("# mine\n")
    assert commands.run("reset all") == 0
    assert (commands.progress.lesson.number, mine.exists()) == (1, False)
    [kept] = mine.parent.parent.glob("mine-*/ex03*.py")
    assert kept.read_text() == "# mine\n"


def test_run_tells_the_story_of_its_first_broken_cell(
    out: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells: list[dict[str, Any]] = [
        {"lock": "token", "fault": "late-release", "story": []},
        {"lock": "setpx-del", "fault": "late-release", "story": ["0.1 s  A stops", "0.2 s  B"]},
    ]
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "summary.json").write_text(json.dumps({"runs": cells}))
    monkeypatch.setattr(render, "RESULTS", tmp_path)
    render.show_story(out, time.time() - 60)
    text = out.export_text()
    assert ("setpx-del under late-release:" in text, "A stops" in text) == (True, True)
    render.show_story(out, time.time() + 60)  # of a run before this one nothing is told
    assert out.export_text() == ""


def test_deadlock_of_a_run_is_explained_where_there_is_one(
    out: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "latest").mkdir()
    summary = tmp_path / "latest" / "summary.json"
    monkeypatch.setattr(render, "RESULTS", tmp_path)
    for verdict in ("deadlock", "oversold"):
        cell = {"lock": "setnx", "fault": "crash", "verdict": verdict, "story": ["0.1 s  A"]}
        summary.write_text(json.dumps({"runs": [cell]}))
        render.show_story(out, time.time() - 60)
        text = " ".join(out.export_text().split())
        assert "order numbers are shared by all strategies" in text
        assert ("a lock that is never released" in text) == (verdict == "deadlock")


def test_solution_that_differs_in_blank_lines_alone_is_the_same(
    commands: Commands, out: Console
) -> None:
    lesson = lessons()[2]
    commands.run("goto 2")
    commands.progress.record_check(lesson, None)
    file = commands.progress.copy_of(lesson)
    file.write_text(lesson.solved().replace("\n\n\ndef", "\n\ndef"))
    out.export_text()
    assert commands.run("solution") == 0
    assert out.export_text() == "your file is the same as our solution\n"
    file.write_text(lesson.solved().replace("orders - initial", "-left"))
    commands.run("solution")
    assert "+    return max(0, orders - initial)" in out.export_text()


def test_exact_run_shows_the_effect_of_the_fault(
    out: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In lesson 9 the lost answers and the orders that came back are the point."""
    evidence = "10 replies to COMMIT were dropped; 10 buyers got it replayed"
    cell = {"lock": "row-lock", "fault": "unknown-commit", "evidence": evidence}
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "summary.json").write_text(json.dumps({"runs": [cell]}))
    monkeypatch.setattr(render, "RESULTS", tmp_path)
    render.show_story(out, time.time() - 60)
    assert evidence in " ".join(out.export_text().split())


def test_words_of_a_run_are_explained_below_it_and_in_the_glossary(
    out: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "latest").mkdir()
    cell = {"lock": "token", "fault": "slow", "story": ["0.1 s  victim (node A) has the lock"]}
    (tmp_path / "latest" / "summary.json").write_text(json.dumps({"runs": [cell]}))
    monkeypatch.setattr(render, "RESULTS", tmp_path)
    render.show_story(out, time.time() - 60)
    text = out.export_text()
    glossary = (HERE / "GLOSSARY.md").read_text("utf-8")
    for word in ("victim", "rival", "node", "healed", "expected"):
        assert word in text
        assert word in glossary


def test_notes_have_answer_questions_and_solution(commands: Commands, out: Console) -> None:
    for lesson in lessons().values():
        assert commands.run(f"notes {lesson.number}") == 0
        text = out.export_text()
        assert f"{lesson.answer}: " in text
        assert lesson.solution.splitlines()[0] in text
        flat = " ".join(text.split())
        for note in (lesson.objective, *lesson.key_points, *lesson.misconceptions.values()):
            assert note in flat
        assert text.count("ask:") == len({*lesson.refusals, *common_refusals()})
        likely = [line.partition(":")[0] for line in text.splitlines()]
        places = [likely.index(code) for code in lesson.likely]
        assert places == sorted(places)
        assert max(places, default=0) < text.splitlines().index("its other refusals:")
    assert commands.run("notes") == 0
    assert out.export_text().count("lesson ") == len(lessons())


def test_refusal_names_its_facts(out: Console) -> None:
    lesson = lessons()[7]
    refusal = Refusal("not-atomic-renewal", {"command": 1, "left": 60000}, ("sent [red] :key:",))
    render.show_result(out, lesson, Result(refusal), "ex07.py")
    text = out.export_text()
    assert "between your command 1 and the next one the lock changed hands" in text
    assert " sent [red] :key:\n" in text, "as it is, not as a colour or a picture"
    unlike = {"fault": "slow", "missing": "nothing was to be seen", "control": "token-watchdog"}
    render.show_result(out, lesson, Result(Refusal("not-like-the-others", unlike)), "ex07.py")
    assert "it had its effect on `token-watchdog`" in out.export_text()


class Keyboard(io.TextIOWrapper):
    """A terminal in which this was typed, and Ctrl-D after it."""

    def __init__(self, typed: bytes) -> None:
        super().__init__(io.BytesIO(typed), encoding="utf-8")

    def isatty(self) -> bool:
        return True


def test_at_the_end_of_the_input_no_quiz_and_no_prediction_is_kept(
    commands: Commands, out: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard(b"c\n"))
    assert (commands.run("quiz"), commands.progress.quiz) == (2, {})
    assert commands.run("predict") == commands.run("run") == 2
    assert commands.progress.record_of(lessons()[1])["predicted"] is None
    assert "nothing is kept" in out.export_text()


def _interrupt(*_: object) -> str:
    raise KeyboardInterrupt


def test_ctrl_c_leaves_only_the_quiz(
    commands: Commands, out: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a session Ctrl-C ends the quiz, and not the session; outside it ends the command."""
    monkeypatch.setattr(sys, "stdin", Keyboard(b""))
    monkeypatch.setattr(commands.typed_lines, "ask_letter", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        commands.run("quiz")
    commands.in_a_session = True
    assert (commands.run("quiz"), commands.progress.quiz) == (2, {})
    assert "no answer is kept" in out.export_text()


def test_first_screen_names_hint_and_help(commands: Commands, out: Console) -> None:
    commands.introduce_lesson()
    assert "hint helps, quiz asks eight questions" in out.export_text()


def test_invalid_utf8_does_not_end_the_session(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard(b"\xb2\ngoto 3\n"))
    commands.run_session()
    assert commands.progress.lesson.number == 3


@pytest.mark.parametrize("word", ["goto", "notes", "quiz"])
def test_superscript_is_not_a_number(commands: Commands, word: str) -> None:
    assert commands.run(f"{word} \N{SUPERSCRIPT TWO}") == 2


def test_full_disk_is_not_reported_as_a_missing_file(
    commands: Commands, out: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workshop.checker.subprocess.run", lambda *_, **__: None)  # the doctor
    with (tmp_path / "log").open("wb") as log:
        checking = Checker(out, log)
        checking.close()  # and so the copy cannot be written
        result = checking.check(lessons()[1], commands.progress.copy_of(lessons()[1]))
    assert (result.exit_code, result.refusal) == (2, None)


def test_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(DamagedProgress):
        Progress(tmp_path / "mine")


def test_report_as_json_has_what_a_facilitator_collects(commands: Commands, out: Console) -> None:
    commands.run("quiz abbcdcaa")
    commands.run("goto 3")
    commands.run("b")
    commands.progress.record_check(lessons()[3], "always-true")
    commands.progress.record_check(lessons()[3], None)
    out.export_text()
    assert commands.run("report --json") == 0
    report = json.loads(out.export_text())
    assert report["quiz"] == {"before": {"answers": "abbcdcaa", "right": 7, "of": 8}}
    assert [lesson["number"] for lesson in report["lessons"]] == list(lessons())
    third = report["lessons"][2]
    assert third.pop("passed_at") is not None
    assert third == {
        "number": 3,
        "title": "A lock in one process",
        "predicted": "b",
        "answer": "b",
        "tries": 2,
        "hints": 0,
        "refused": ["always-true"],
    }
    first = report["lessons"][0]
    assert (first["predicted"], first["passed_at"]) == (None, None)
    assert commands.run("report json") == 2


def write_report(folder: Path, name: str, *refusals: str, quiz: str = "") -> None:
    """Write the report of a pair that has predicted and passed lesson 3."""
    out = render.make_console()
    out.record = True
    commands = Commands(out, Progress(folder / name), cast(Checker, Undecidable()))
    commands.progress.keep_prediction(lessons()[3], "a" if refusals else "b")
    for code in (*refusals, None):
        commands.progress.record_check(lessons()[3], code)
    if quiz:
        commands.progress.keep_quiz_answers(quiz)
    commands.run("report --json")
    (folder / f"{name}.json").write_text(out.export_text())


def test_reports_of_a_room_are_added_up(commands: Commands, out: Console, tmp_path: Path) -> None:
    write_report(tmp_path, "pair-1", quiz="abbcdcad")
    write_report(tmp_path, "pair-2", "always-true", "check-then-set", quiz="abbcdcaa")
    write_report(tmp_path, "pair-3", "always-true")
    out.export_text()
    assert commands.run(f"report --merge {tmp_path}/pair-*.json") == 0
    lines = [" ".join(line.split()) for line in out.export_text().splitlines()]
    assert lines[:2] == ["3 reports", "quiz before: 7.5 of 8 right on average, in 2 reports"]
    [row] = [line for line in lines if line.startswith("3 A lock in one")]
    assert row.startswith("3 A lock in one")
    assert " 1 of 3 3 6 always-true 2" in row
    assert "check-then-set 1" in " ".join(lines)
    assert not [line for line in lines if line.startswith("4 ")], "nobody has begun lesson 4"


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"quiz": {}, "lessons": [{"number": 99}]}'])
def test_file_that_is_not_a_report_is_named(
    commands: Commands, out: Console, tmp_path: Path, text: str
) -> None:
    (tmp_path / "pair-1.json").write_text(text)
    assert commands.run(f"report --merge {tmp_path}/pair-1.json") == 2
    assert "pair-1.json is not the output of report --json" in " ".join(out.export_text().split())
    assert commands.run(f"report --merge {tmp_path}/none-*.json") == 2
    assert "does not exist" in " ".join(out.export_text().split())
    assert commands.run("report --merge") == 2


def test_report_as_json_is_a_command_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["workshop", "report", "--json"])
    monkeypatch.setattr("workshop.__main__.LOG", tmp_path / "workshop.log")
    monkeypatch.setattr("workshop.__main__.Progress", lambda: Progress(tmp_path / "mine"))
    monkeypatch.setattr("workshop.__main__.end_on", lambda *signals: None)
    assert main() == 0
    assert json.loads(capsys.readouterr().out)["quiz"] == {}


class Decided:
    """A Checker for which every exercise passes. `checked` has the names of the checked files."""

    def __init__(self) -> None:
        self.checked: list[str] = []

    def check(self, lesson: Lesson, file: Path) -> Result:
        self.checked.append(file.name)
        return Result()


def test_wrong_prediction_is_explained(
    commands: Commands, out: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` shows the belief behind a wrong prediction; `explain` ends with the key points."""
    monkeypatch.setattr("workshop.commands.run_shell_command", lambda command, should_end=None: 0)
    lesson = lessons()[3]
    commands.run("goto 3")
    commands.run("a")
    out.export_text()
    assert commands.run("run") == 0
    text = " ".join(out.export_text().split())
    assert lesson.misconceptions["a"] in text
    assert "off: a verdict that is not the one recorded" in text
    commands.run("explain")
    assert lesson.key_points[-1] in " ".join(out.export_text().split())


def test_number_after_check_and_reset_means_that_lesson(out: Console, tmp_path: Path) -> None:
    checking = Decided()
    commands = Commands(out, Progress(tmp_path / "mine"), cast(Checker, checking))
    commands.run("goto 4")
    assert commands.run("check 3") == 0
    assert checking.checked == [lessons()[3].file]
    assert commands.progress.has_passed(lessons()[3])
    assert not commands.progress.has_passed(lessons()[4])
    other, present = (commands.progress.copy_of(lessons()[number]) for number in (3, 4))
    other.write_text("# of lesson 3\n")
    present.write_text("# of lesson 4\n")
    assert commands.run("reset 3") == 0
    assert present.read_text() == "# of lesson 4\n"
    assert other.read_text() == lessons()[3].shipped_path.read_text()
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
def test_word_with_something_that_it_does_not_take_is_refused(
    commands: Commands, line: str
) -> None:
    commands.run("goto 4")
    file = commands.progress.copy_of(lessons()[4])
    assert commands.run(line) == 2
    assert commands.progress.lesson.number == 4
    assert commands.progress.record_of(lessons()[4])["hints"] == 0
    assert list(file.parent.glob("*.bak*")) == []


def test_second_reset_keeps_the_first_backup(commands: Commands) -> None:
    file = commands.progress.copy_of(lessons()[1])
    for text in ("first", "second", "third"):
        file.write_text(text)
        assert commands.run("reset") == 0
    kept = sorted(file.parent.glob(f"{file.name}.bak*"))
    assert sorted(path.read_text() for path in kept) == ["first", "second", "third"]


def test_run_shows_what_to_do_and_explain_shows_it_again(
    commands: Commands, out: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first screen says: a letter, run, explain. So `explain` may be read last."""
    monkeypatch.setattr(sys, "stdin", Keyboard(b""))
    monkeypatch.setattr("workshop.commands.run_shell_command", lambda command, should_end=None: 0)
    commands.run("c")
    out.export_text()
    assert commands.run("run") == 0
    assert "Press New round" in out.export_text()
    commands.run("explain")
    text = out.export_text()
    assert ("Press New round" in text, "What if" in text) == (True, True)


def test_notes_have_the_refusals_that_every_exercise_can_get(
    commands: Commands, out: Console
) -> None:
    assert commands.run("notes 3") == 0
    text = out.export_text()
    for code in common_refusals():
        assert f"{code}: " in text


def test_notes_of_a_code_are_its_reason_and_question(commands: Commands, out: Console) -> None:
    assert commands.run("notes rush-stuck") == 0
    text = " ".join(out.export_text().split())
    assert common_refusals()["rush-stuck"]["question"] in text
    assert commands.run("notes always-true") == 0
    text = " ".join(out.export_text().split())
    for number in (3, 4):
        assert lessons()[number].refusals["always-true"]["question"] in text
    assert commands.run("notes rush-stick") == 2
    assert "rush-stuck" in out.export_text(), "the code that was meant is named"


def test_command_of_a_session_prints_no_line_of_make(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`make workshop` runs the session, so the commands of the lessons are nested makes."""
    monkeypatch.setenv("MAKELEVEL", "1")
    assert run_shell_command("make --dry-run doctor") == 0
    assert "directory" not in capfd.readouterr().out
