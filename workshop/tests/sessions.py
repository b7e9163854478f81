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
    terminal.expects("Lesson 1: Two buyers")
    terminal.expects("lesson 1> ")
    terminal.types("list")
    terminal.expects("11 +No lock at all")
    for number, letter, shows in ((1, "c", "steps +http"), (2, "a", "OVERSOLD"), (3, "b", "EXACT")):
        lesson = lessons()[number]
        terminal.expects(f"lesson {number}> ")
        terminal.types("run")
        terminal.expects("predict first")
        terminal.types(letter)
        terminal.expects(shows)
        if lesson.stays:
            terminal.types("")
        terminal.expects("You predicted")
        terminal.types("check")
        terminal.expects(f"REFUSED +{next(iter(lesson.refusals))}")
        (terminal.project / "workshop" / "mine" / lesson.file).write_text(lesson.solved())
        terminal.expects("PASSED")
        terminal.types("explain")
        terminal.expects("What if")
        terminal.types("next")
    terminal.expects("lesson 4> ")
    terminal.types("quit")
    assert terminal.ends() == 0
    assert re.findall(r"\x1b\[(?:[0-9;]*;)?[349][0-7]m", terminal.raw) == []  # no colour


def at_the_prompt(terminal: Terminal) -> None:
    terminal.expects("lesson 1> ")


def while_servers_start(terminal: Terminal) -> None:
    terminal.types("check")
    terminal.expects("starting the nodes")


def while_a_command_runs(terminal: Terminal) -> None:
    terminal.types("c")
    terminal.types("run")
    terminal.expects("starting the nodes|page +http")
    terminal.ctrl_c()
    terminal.expects("You predicted")  # the command ended, and the session goes on


@pytest.mark.parametrize("moment", [at_the_prompt, while_servers_start, while_a_command_runs])
def test_ctrl_c_leaves_no_process(terminal: Terminal, moment: Callable[[Terminal], None]) -> None:
    moment(terminal)
    terminal.ctrl_c()
    assert terminal.ends() == 130


def test_words_work_without_a_terminal(
    project: Path,
) -> None:
    """The commands have exit codes and print lines of 80 columns."""
    shutil.rmtree(project / "workshop" / "mine", ignore_errors=True)

    def says(*words: str) -> tuple[int, str]:
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

    assert says("list")[0] == says("help")[0] == 0
    code, text = says("explain")
    assert (code, "Predict first" in text, "Observe" in text) == (0, True, False)
    assert says("run")[0] == 2
    assert says("quiz", "7")[0] == says("quiz", "ab-dcab-")[0] == 0
    assert says("quiz", "9")[0] == says("quiz", "no")[0] == 2
    assert "kept" in says("predict", "ab"[:1])[1]
    assert "Observe" in says("explain")[1]
    assert says("predict", "ab")[0] == 2
    code, text = says("run")
    assert (code, "start it in a terminal" in text) == (2, True)
    code, text = says("check")
    assert (code, "REFUSED  todo" in text) == (1, True)
    lesson = lessons()[1]
    mine = project / "workshop" / "mine" / lesson.file
    mine.unlink()
    code, text = says("check")
    assert (code, "REFUSED  gone" in text) == (1, True)
    assert says("reset")[0] == 0
    assert "lesson 1 refused: todo, gone" in says("report")[1]
    code, text = says("report", "--json")
    assert (code, json.loads(text)["lessons"][0]["refused"]) == (0, ["todo", "gone"])
    mine.write_text("SELLS_TWICE = (\n")
    code, text = says("check")
    assert (code, f"{lesson.file}: line 1: SyntaxError" in text) == (1, True)
    mine.write_text(lesson.solved())
    assert says("check")[0] == 0
    shutil.rmtree(mine.parent)
    mine.parent.symlink_to("nowhere")
    code, text = says("predict", "a")
    mine.parent.unlink()
    assert (code, "Traceback" in text, "File exists" in text) == (2, False, True)
    assert_nothing_is_left(project)


def test_killed_servers_leave_a_check_undecided(
    terminal: Terminal,
) -> None:
    """The check counts as no try, and the session continues."""
    terminal.expects("lesson 1> ")
    terminal.types("goto 3")
    lesson = lessons()[3]
    terminal.expects(re.escape(lesson.file))
    (terminal.project / "workshop" / "mine" / lesson.file).write_text(lesson.solved())
    terminal.expects("PASSED")
    valkeys = [
        process
        for process in psutil.Process(terminal.process.pid).children(recursive=True)
        if process.name() == "valkey-server"
    ]
    assert valkeys
    for process in valkeys:
        process.kill()
    terminal.expects("lesson 3> ")
    terminal.types("check")
    terminal.expects("UNDECIDED")
    terminal.expects("Type check to try again")
    terminal.types("check")
    terminal.expects("PASSED")
    terminal.types("quit")
    assert terminal.ends() == 0
