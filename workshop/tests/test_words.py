"""What a session keeps, and what it says. Needs no server."""

import io
import json
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from workshop import render
from workshop.checker import Checking
from workshop.lessons import lessons
from workshop.progress import TRIES_UNTIL_SOLUTION, DamagedProgress, Progress
from workshop.refusal import Refusal, Result
from workshop.words import Words


class Undecidable:
    """Stands for the servers of a machine that is too busy: nothing can be decided on it."""

    def check(self, *_: object) -> Result:
        return Result(undecided="crash: nothing to be seen")


@pytest.fixture
def out() -> Console:
    found = render.console()
    found.record, found.width = True, 80
    return found


@pytest.fixture
def words(out: Console, tmp_path: Path) -> Words:
    return Words(out, Progress(tmp_path / "mine"), cast(Checking, Undecidable()))


def test_a_prediction_stays_once_the_answer_was_shown(words: Words, out: Console) -> None:
    assert words.run("predict a") == words.run("b") == 0
    words.progress.seen(lessons()[1])
    assert words.run("c") == 2
    assert "stays what it was" in out.export_text()
    assert words.progress.of(lessons()[1])["predicted"] == "b"


def test_no_idea_is_listed_as_such(words: Words, out: Console) -> None:
    words.progress.predicted(lessons()[1], "")
    assert words.run("LIST") == 0
    assert "no idea" in out.export_text()


def test_the_same_code_undecided_twice_counts_and_says_what_to_look_at(
    words: Words, out: Console
) -> None:
    known = words.progress.of(lessons()[1])
    assert words.run("check") == 2
    first = out.export_text()
    assert ("Type check to try again" in first, known["tries"]) == (True, 0)
    for _ in range(TRIES_UNTIL_SOLUTION):
        words.run("check")
    assert "Twice undecided with the same code" in out.export_text()
    assert (known["tries"], known["codes"]) == (3, ["undecided"] * 3)
    assert words.run("solution") == 0


def test_other_code_after_an_undecided_check_begins_anew(words: Words) -> None:
    words.run("check")
    words.progress.file(lessons()[1]).write_text("SELLS_TWICE = 'ABABAB'\n")
    words.run("check")
    assert words.progress.of(lessons()[1])["tries"] == 0


@pytest.mark.parametrize(
    ("topic", "has"),
    [("redis", "self.client.pttl"), ("lua", "ARGV[1]"), ("sell_one", "for_update=True")],
)
def test_the_sheet_has_what_an_exercise_is_made_of(
    words: Words, out: Console, topic: str, has: str
) -> None:
    assert words.run(f"help {topic}") == 0
    assert has in out.export_text()
    assert words.run("help everything") == 2


def test_the_next_room_begins_anew_and_the_files_of_this_one_are_kept(words: Words) -> None:
    words.run("goto 3")
    mine = words.progress.file(lessons()[3])
    mine.write_text("# mine\n")
    assert words.run("reset all") == 0
    assert (words.progress.lesson.number, mine.exists()) == (1, False)
    [kept] = mine.parent.parent.glob("mine-*/ex03*.py")
    assert kept.read_text() == "# mine\n"


def test_a_run_tells_the_story_of_its_first_broken_cell(
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


def test_every_lesson_has_notes_with_its_answer_its_questions_and_its_solution(
    words: Words, out: Console
) -> None:
    for lesson in lessons().values():
        assert words.run(f"notes {lesson.number}") == 0
        text = out.export_text()
        assert f"{lesson.answer}: " in text
        assert lesson.solution.splitlines()[0] in text
        assert text.count("ask:") == len(lesson.refusals)
    assert words.run("notes") == 0
    assert out.export_text().count("lesson ") == len(lessons())


def test_a_refusal_names_its_facts(out: Console) -> None:
    lesson = lessons()[7]
    refusal = Refusal("not-atomic-renewal", {"command": 1, "left": 60000}, ("sent [red] :key:",))
    render.show_result(out, lesson, Result(refusal), "ex07.py")
    text = out.export_text()
    assert "between your command 1 and the next one the lock changed hands" in text
    assert " sent [red] :key:\n" in text, "as it is, not as a colour or a picture"
    unlike = {"fault": "slow", "missing": "nothing was to be seen", "control": "token-watchdog"}
    render.show_result(out, lesson, Result(Refusal("not-like-the-others", unlike)), "ex07.py")
    assert "it was made for `token-watchdog`" in out.export_text()


class Keyboard(io.TextIOWrapper):
    """A terminal in which this was typed, and Ctrl-D after it."""

    def __init__(self, typed: bytes) -> None:
        super().__init__(io.BytesIO(typed), encoding="utf-8")

    def isatty(self) -> bool:
        return True


def test_at_the_end_of_the_input_no_quiz_and_no_prediction_is_kept(
    words: Words, out: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard(b"c\n"))
    assert (words.run("quiz"), words.progress.quiz) == (2, {})
    assert words.run("predict") == words.run("run") == 2
    assert words.progress.of(lessons()[1])["predicted"] is None
    assert "nothing is kept" in out.export_text()


def test_a_byte_that_is_no_text_does_not_end_the_session(
    words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard(b"\xb2\ngoto 3\n"))
    words.session()
    assert words.progress.lesson.number == 3


@pytest.mark.parametrize("word", ["goto", "notes", "quiz"])
def test_a_superscript_is_no_number(words: Words, word: str) -> None:
    assert words.run(f"{word} \N{SUPERSCRIPT TWO}") == 2


def test_a_disk_that_is_full_is_no_file_that_is_gone(
    words: Words, out: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workshop.checker.subprocess.run", lambda *_, **__: None)  # the doctor
    with (tmp_path / "log").open("wb") as log:
        checking = Checking(out, log)
        checking.close()  # and so the copy cannot be written
        result = checking.check(lessons()[1], words.progress.file(lessons()[1]))
    assert (result.exit_code, result.refusal) == (2, None)


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(DamagedProgress):
        Progress(tmp_path / "mine")
