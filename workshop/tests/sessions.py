"""Whole sessions in a terminal. `make test-workshop` runs them, `make test` does not."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from loadtest.tests.checkout import assert_nothing_is_left, copy_project, make_user_environment
from workshop.commands import NOT_DONE_EXIT_CODE
from workshop.lessons import lessons
from workshop.refusal import REFUSED
from workshop.tests.terminal import Terminal

#: All tests run in one worker of xdist, so that one copy of the project is enough.
pytestmark = pytest.mark.xdist_group("sessions")
#: The exit code of a session that Ctrl-C has ended.
CTRL_C_EXIT_CODE = 130


@pytest.fixture(scope="module")
def project() -> Iterator[Path]:
    """Return a copy of the project.

    The copy is not in tmp_path, because PostgreSQL may not read the folders of another pytest run.
    """
    with tempfile.TemporaryDirectory(prefix="oversold-workshop-") as folder:
        yield copy_project(Path(folder).resolve())


@pytest.fixture
def terminal(project: Path) -> Iterator[Terminal]:
    """Start a session of a new participant. Assert after the test that no process is left."""
    shutil.rmtree(project / "workshop" / "mine", ignore_errors=True)
    with Terminal(project, NO_COLOR="1") as terminal:
        yield terminal
    assert_nothing_is_left(project)


def test_participant_solves_three_lessons_in_a_session(terminal: Terminal) -> None:
    """The participant predicts, runs, is refused, solves the exercise and reads the text."""
    terminal.expect("Lesson 1: Two buyers")
    terminal.expect("lesson 1> ")
    terminal.type_line("list")
    terminal.expect("11 +No lock at all")  # lesson 11 in the list
    output_by_lesson = {1: "steps +http", 2: "OVERSOLD", 3: "EXACT"}
    for number, output_of_run in output_by_lesson.items():
        lesson = lessons()[number]
        terminal.expect(f"lesson {number}> ")
        terminal.type_line("run")
        terminal.expect("predict first")
        terminal.type_line(lesson.answer)
        terminal.expect(output_of_run)
        if lesson.runs_until_ended:
            terminal.type_line("")  # ends the command
        terminal.expect("You predicted")
        terminal.type_line("check")
        terminal.expect(f"REFUSED +{next(iter(lesson.refusals))}")
        (terminal.project / "workshop" / "mine" / lesson.file).write_text(
            lesson.make_solved_exercise()
        )
        terminal.expect("PASSED")
        terminal.type_line("explain")
        terminal.expect("What if")
        terminal.type_line("next")
    terminal.expect("lesson 4> ")
    terminal.type_line("quit")
    assert terminal.wait_for_end() == 0
    assert re.findall(r"\x1b\[(?:[0-9;]*;)?[349][0-7]m", terminal.raw) == []  # no colour


def wait_for_prompt(terminal: Terminal) -> None:
    """Wait until the session is ready for a command."""
    terminal.expect("lesson 1> ")


def begin_check(terminal: Terminal) -> None:
    """Type `check`, and wait until its servers start."""
    terminal.type_line("check")
    terminal.expect("starting the nodes")


def begin_and_interrupt_run(terminal: Terminal) -> None:
    """Type `run`, and end the command of the lesson by Ctrl-C."""
    terminal.type_line("c")  # a prediction, without which `run` would ask for one
    terminal.type_line("run")
    terminal.expect("starting the nodes|page +http")
    terminal.press_ctrl_c()
    terminal.expect("You predicted")  # the command ended, and the session goes on


def leave_quiz(terminal: Terminal) -> None:
    """Type `quiz`, and leave the quiz by Ctrl-C."""
    wait_for_prompt(terminal)
    terminal.type_line("quiz")
    terminal.expect("> ")
    terminal.press_ctrl_c()
    terminal.expect("quiz was interrupted")  # the session goes on


@pytest.mark.parametrize(
    "prepare", [wait_for_prompt, begin_check, begin_and_interrupt_run, leave_quiz]
)
def test_ctrl_c_leaves_no_process(terminal: Terminal, prepare: Callable[[Terminal], None]) -> None:
    """After the test, the fixture `terminal` asserts that no process is left."""
    prepare(terminal)
    terminal.press_ctrl_c()
    assert terminal.wait_for_end() == CTRL_C_EXIT_CODE


def run_workshop(project: Path, *words: str) -> tuple[int, str]:
    """Run a command of the workshop without a terminal. Return its exit code and its output.

    The output has no escape sequences, and no line is longer than 80 columns.
    """
    process = subprocess.run(
        [sys.executable, "-m", "workshop", *words],
        cwd=project,
        env=make_user_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
    )
    assert "\x1b" not in process.stdout
    assert max(map(len, process.stdout.splitlines()), default=0) <= 80, process.stdout
    return process.returncode, process.stdout


@pytest.fixture
def participants_folder(project: Path) -> Iterator[Path]:
    """Return the participant's folder, which does not exist yet.

    Assert after the test that no process is left.
    """
    folder = project / "workshop" / "mine"
    shutil.rmtree(folder, ignore_errors=True)
    yield folder
    assert_nothing_is_left(project)


@pytest.mark.usefixtures("participants_folder")
def test_predictions_work_without_a_terminal(project: Path) -> None:
    """Before the prediction, `explain` shows a part of the text, and `run` does nothing."""
    run_command = partial(run_workshop, project)
    assert run_command("list")[0] == run_command("help")[0] == 0
    exit_code, output = run_command("explain")
    assert exit_code == 0
    assert "Predict first" in output
    assert "Observe" not in output
    # There is no prediction yet, and no terminal in which `run` could ask for it.
    assert run_command("run")[0] == NOT_DONE_EXIT_CODE
    assert run_command("predict", "ab")[0] == NOT_DONE_EXIT_CODE
    assert "kept" in run_command("predict", "a")[1]
    assert "Observe" in run_command("explain")[1]
    exit_code, output = run_command("run")  # the command of lesson 1 runs until Ctrl-C
    assert exit_code == NOT_DONE_EXIT_CODE
    assert "start it in a terminal" in output


@pytest.mark.usefixtures("participants_folder")
def test_quiz_works_without_a_terminal(project: Path) -> None:
    """A digit shows one of the eight questions. Eight letters or hyphens are the answers."""
    run_command = partial(run_workshop, project)
    for argument in ("7", "ab-dcab-"):
        assert run_command("quiz", argument)[0] == 0
    for wrong_argument in ("9", "no"):
        assert run_command("quiz", wrong_argument)[0] == NOT_DONE_EXIT_CODE


def test_checks_and_reports_work_without_a_terminal(
    project: Path, participants_folder: Path
) -> None:
    """The exercise is checked unsolved, after it was removed, with a syntax error, and solved."""
    run_command = partial(run_workshop, project)
    lesson = lessons()[1]
    file = participants_folder / lesson.file
    exit_code, output = run_command("check")
    assert exit_code == REFUSED
    assert "REFUSED  todo" in output
    file.unlink()
    exit_code, output = run_command("check")
    assert exit_code == REFUSED
    assert "REFUSED  gone" in output
    assert run_command("reset")[0] == 0
    assert "lesson 1 refused: todo, gone" in run_command("report")[1]
    exit_code, output = run_command("report", "--json")
    assert exit_code == 0
    assert json.loads(output)["lessons"][0]["refused"] == ["todo", "gone"]
    file.write_text("SELLS_TWICE = (\n")
    exit_code, output = run_command("check")
    assert exit_code == REFUSED
    assert f"{lesson.file}: line 1: SyntaxError" in output
    file.write_text(lesson.make_solved_exercise())
    assert run_command("check")[0] == 0


def test_folder_that_cannot_be_made_is_reported(project: Path, participants_folder: Path) -> None:
    """A link to a missing file has the folder's name, so mkdir() fails with "File exists"."""
    participants_folder.symlink_to("nowhere")
    try:
        exit_code, output = run_workshop(project, "predict", "a")
    finally:
        participants_folder.unlink()
    assert exit_code == NOT_DONE_EXIT_CODE
    assert "Traceback" not in output
    assert "File exists" in output


def test_check_is_undecided_if_its_servers_were_killed(terminal: Terminal) -> None:
    """After Valkey was killed, a check is undecided, and the next check starts new servers."""
    terminal.expect("lesson 1> ")
    terminal.type_line("goto 3")
    lesson = lessons()[3]
    terminal.expect(re.escape(lesson.file))
    # The save starts a check, and this check starts the servers.
    (terminal.project / "workshop" / "mine" / lesson.file).write_text(lesson.make_solved_exercise())
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
