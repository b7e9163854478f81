"""Whole sessions in a terminal. Not in `make test`: make test-workshop."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from loadtest.tests.checkout import assert_nothing_is_left, copy_project, user_environment
from workshop.lessons import lessons
from workshop.tests.terminal import Terminal

#: One worker of xdist has the copy of the project.
pytestmark = pytest.mark.xdist_group("sessions")


@pytest.fixture(scope="module")
def project() -> Iterator[Path]:
    """Copy the project, not into tmp_path: another run of pytest closes that to PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="oversold-workshop-") as folder:
        yield copy_project(Path(folder).resolve())


@pytest.fixture
def terminal(project: Path) -> Iterator[Terminal]:
    shutil.rmtree(project / "workshop" / "mine", ignore_errors=True)
    with Terminal(project, NO_COLOR="1") as terminal:
        yield terminal
    assert_nothing_is_left(project)


def test_participant_goes_from_the_list_through_three_lessons_to_quit(
    terminal: Terminal,
) -> None:
    terminal.expect("Lesson 1: Two buyers")
    terminal.expect("lesson 1> ")
    terminal.type_line("list")
    terminal.expect("11 +No lock at all")
    for number, letter, shows in ((1, "c", "steps +http"), (2, "a", "OVERSOLD"), (3, "b", "EXACT")):
        lesson = lessons()[number]
        terminal.expect(f"lesson {number}> ")
        terminal.type_line("run")
        terminal.expect("predict first")
        terminal.type_line(letter)
        terminal.expect(shows)
        if lesson.stays:
            terminal.type_line("")
        terminal.expect("You predicted")
        terminal.type_line("check")
        terminal.expect(f"REFUSED +{next(iter(lesson.refusals))}")
        (terminal.project / "workshop" / "mine" / lesson.file).write_text(lesson.solved())
        terminal.expect("PASSED")
        terminal.type_line("explain")
        terminal.expect("What if")
        terminal.type_line("next")
    terminal.expect("lesson 4> ")
    terminal.type_line("quit")
    assert terminal.wait_for_end() == 0
    assert re.findall(r"\x1b\[(?:[0-9;]*;)?[349][0-7]m", terminal.raw) == []  # no colour


def wait_for_prompt(terminal: Terminal) -> None:
    terminal.expect("lesson 1> ")


def begin_a_check(terminal: Terminal) -> None:
    terminal.type_line("check")
    terminal.expect("starting the nodes")


def end_a_command(terminal: Terminal) -> None:
    terminal.type_line("c")
    terminal.type_line("run")
    terminal.expect("starting the nodes|page +http")
    terminal.press_ctrl_c()
    terminal.expect("You predicted")  # the command ended, and the session goes on


@pytest.mark.parametrize("prepare", [wait_for_prompt, begin_a_check, end_a_command])
def test_ctrl_c_leaves_no_process(terminal: Terminal, prepare: Callable[[Terminal], None]) -> None:
    prepare(terminal)
    terminal.press_ctrl_c()
    assert terminal.wait_for_end() == 130


def test_words_work_without_a_terminal(
    project: Path,
) -> None:
    """The commands have exit codes and print lines of 80 columns."""
    shutil.rmtree(project / "workshop" / "mine", ignore_errors=True)

    def run_command(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "workshop", *words],
            cwd=project,
            env=user_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
        )
        assert "\x1b" not in done.stdout
        assert max(map(len, done.stdout.splitlines()), default=0) <= 80, done.stdout
        return done.returncode, done.stdout

    assert run_command("list")[0] == run_command("help")[0] == 0
    code, text = run_command("explain")
    assert (code, "Predict first" in text, "Observe" in text) == (0, True, False)
    assert run_command("run")[0] == 2
    assert run_command("quiz", "7")[0] == run_command("quiz", "ab-dcab-")[0] == 0
    assert run_command("quiz", "9")[0] == run_command("quiz", "no")[0] == 2
    assert "kept" in run_command("predict", "a")[1]
    assert "Observe" in run_command("explain")[1]
    assert run_command("predict", "ab")[0] == 2
    code, text = run_command("run")
    assert (code, "start it in a terminal" in text) == (2, True)
    code, text = run_command("check")
    assert (code, "REFUSED  todo" in text) == (1, True)
    lesson = lessons()[1]
    mine = project / "workshop" / "mine" / lesson.file
    mine.unlink()
    code, text = run_command("check")
    assert (code, "REFUSED  gone" in text) == (1, True)
    assert run_command("reset")[0] == 0
    assert "lesson 1 refused: todo, gone" in run_command("report")[1]
    code, text = run_command("report", "--json")
    assert (code, json.loads(text)["lessons"][0]["refused"]) == (0, ["todo", "gone"])
    mine.write_text("SELLS_TWICE = (\n")
    code, text = run_command("check")
    assert (code, f"{lesson.file}: line 1: SyntaxError" in text) == (1, True)
    mine.write_text(lesson.solved())
    assert run_command("check")[0] == 0
    shutil.rmtree(mine.parent)
    mine.parent.symlink_to("nowhere")
    code, text = run_command("predict", "a")
    mine.parent.unlink()
    assert (code, "Traceback" in text, "File exists" in text) == (2, False, True)
    assert_nothing_is_left(project)


def test_killed_servers_leave_a_check_undecided(
    terminal: Terminal,
) -> None:
    """The check counts as no try, and the session continues."""
    terminal.expect("lesson 1> ")
    terminal.type_line("goto 3")
    lesson = lessons()[3]
    terminal.expect(re.escape(lesson.file))
    (terminal.project / "workshop" / "mine" / lesson.file).write_text(lesson.solved())
    terminal.expect("PASSED")
    valkeys = [
        process
        for process in psutil.Process(terminal.process.pid).children(recursive=True)
        if process.name() == "valkey-server"
    ]
    assert valkeys
    for process in valkeys:
        process.kill()
    terminal.expect("lesson 3> ")
    terminal.type_line("check")
    terminal.expect("UNDECIDED")
    terminal.expect("Type check to try again")
    terminal.type_line("check")
    terminal.expect("PASSED")
    terminal.type_line("quit")
    assert terminal.wait_for_end() == 0
