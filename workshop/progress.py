"""A participant's progress in mine/progress.json, which may be copied to another laptop."""

import json
import os
import shutil
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from workshop.lessons import HERE, Lesson, lessons

#: The folder of the participant's copies of the exercises and of progress.json; git ignores it.
PARTICIPANTS_FOLDER = HERE / "mine"
#: Number of refusals after which the participant may see the solution without having passed.
REFUSALS_UNTIL_SOLUTION = 3
#: The content of progress.json at the beginning.
NEW_PROGRESS_JSON = '{"lesson": 1, "lessons": {}, "quiz": {}}'
#: The state of progress.json: its inode, and its modification time in nanoseconds.
Stamp = tuple[int, int]


class DamagedProgress(RuntimeError):
    """progress.json cannot be read. Correct it, or remove it: the exercises stay as they are."""

    def __init__(self, path: Path, error: Exception) -> None:
        super().__init__(f"{path} cannot be read ({error}): correct it, or remove it")


class Progress:
    """The current lesson, a record of each lesson, and the quiz. Each change is saved at once.

    Each method first reads the changes that another process, such as a command in a second
    terminal, has made. So neither process overwrites the changes of the other. If progress.json is
    damaged, the method raises DamagedProgress.
    """

    def __init__(self, folder: Path = PARTICIPANTS_FOLDER) -> None:
        self.folder = folder
        self.path = folder / "progress.json"
        self._read()

    def _read(self) -> None:
        """Read progress.json. If it does not exist, begin with lesson 1.

        Raises DamagedProgress if the file cannot be read.
        """
        self._stamp = self._read_stamp()
        try:
            text = NEW_PROGRESS_JSON
            with suppress(FileNotFoundError):
                text = self.path.read_text("utf-8")
            content = json.loads(text)
            self._content: dict[str, Any] = {
                "lesson": int(content["lesson"]),
                "lessons": dict(content["lessons"]),
                "quiz": dict(content.get("quiz", {})),
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedProgress(self.path, error) from error
        if self._content["lesson"] not in lessons():
            self._content["lesson"] = min(lessons())

    def _refresh(self) -> None:
        """Read progress.json again if another process has replaced it."""
        if self._read_stamp() != self._stamp:
            self._read()

    def _read_stamp(self) -> Stamp | None:
        """Return the inode and the modification time of progress.json; None if it is missing."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DamagedProgress(self.path, error) from error
        return stat.st_ino, stat.st_mtime_ns

    @property
    def lesson(self) -> Lesson:
        """The current lesson."""
        self._refresh()
        return lessons()[self._content["lesson"]]

    def get_record(self, lesson: Lesson) -> dict[str, Any]:
        """Return the record of one lesson. If there is none yet, make it.

        A change by the caller is not saved until a method of this class saves the progress. The
        record has these fields:

            predicted  the letter; "" for no idea; None before the prediction
            right      whether the prediction is right; None before it
            at         the time of the prediction; absent before it
            seen       true once the answer was shown; absent before
            tries      number of checks; an undecided check counts only if the last check of the
                       same file content was undecided, too
            hints      number of hints that were shown
            codes      the code of each refusal, and "undecided" for each repeated undecided check
            passed_at  the time of the first check that passed; absent before it
            undecided  the digest of the file if the last check was undecided; otherwise absent
            begun      true once the copy of the exercise was made
        """
        self._refresh()
        record: dict[str, Any] = self._content["lessons"].setdefault(
            str(lesson.number),
            {"predicted": None, "right": None, "tries": 0, "hints": 0, "codes": []},
        )
        return record

    def go_to(self, number: int) -> None:
        """Make the lesson with this number the current one."""
        self._refresh()
        self._content["lesson"] = number
        self._save()

    def record_prediction(self, lesson: Lesson, letter: str) -> bool:
        """Record a prediction, unless the answer was shown. Return whether it was recorded.

        letter  the predicted option; "" for no idea
        """
        record = self.get_record(lesson)
        if record.get("seen"):
            return False
        record.update(predicted=letter, right=letter == lesson.answer, at=_now())
        self._save()
        return True

    def mark_answer_seen(self, lesson: Lesson) -> None:
        """Record that the answer was shown, so that the prediction cannot be changed any more."""
        self.get_record(lesson)["seen"] = True
        self._save()

    def take_next_hint(self, lesson: Lesson) -> str:
        """Return the next hint. After the last hint, return the last one again."""
        record = self.get_record(lesson)
        record["hints"] = min(record["hints"] + 1, len(lesson.hints))
        self._save()
        return lesson.hints[int(record["hints"]) - 1]

    def record_check(self, lesson: Lesson, refusal_code: str | None) -> None:
        """Record a check: the code of its refusal, or None if the exercise passed."""
        record = self.get_record(lesson)
        record.pop("undecided", None)  # this check was decided
        record["tries"] += 1
        if refusal_code is None:
            record.setdefault("passed_at", _now())
        else:
            record["codes"].append(refusal_code)
        self._save()

    def record_undecided(self, lesson: Lesson, file_content: bytes) -> bool:
        """Record an undecided check. Return whether the last check of the same file was undecided.

        In this case the check also counts as a refusal with the code `undecided`.

        file_content  the content of the participant's file
        """
        record = self.get_record(lesson)
        digest = sha256(file_content).hexdigest()
        is_undecided_again = record.get("undecided") == digest
        if is_undecided_again:
            self.record_check(lesson, "undecided")
        record["undecided"] = digest
        self._save()
        return is_undecided_again

    def has_predicted(self, lesson: Lesson) -> bool:
        """Return whether there is a prediction for the lesson. "No idea" counts as a prediction."""
        return self.get_record(lesson)["predicted"] is not None

    def has_passed(self, lesson: Lesson) -> bool:
        """Return whether the exercise has ever passed a check."""
        return "passed_at" in self.get_record(lesson)

    def may_see_solution(self, lesson: Lesson) -> bool:
        """Return whether the participant has passed, or had REFUSALS_UNTIL_SOLUTION refusals."""
        refusal_count = len(self.get_record(lesson)["codes"])
        return self.has_passed(lesson) or refusal_count >= REFUSALS_UNTIL_SOLUTION

    @property
    def quiz(self) -> dict[str, str]:
        """The letters of the answers to the quiz, `before` and `after` the workshop."""
        self._refresh()
        return dict(self._content["quiz"])

    def record_quiz_answers(self, answers: str) -> None:
        """Record the first answers to the quiz as `before`, and all later answers as `after`.

        answers  a letter for each question, in order; `-` for no idea
        """
        self._refresh()
        quiz = self._content["quiz"]
        quiz["after" if "before" in quiz else "before"] = answers
        self._save()

    def get_own_copy(self, lesson: Lesson) -> Path:
        """Return the path of the participant's copy of the exercise. The first call makes the copy.

        If the participant removes the copy, only reset() makes a new one.
        """
        path = self.folder / lesson.file
        record = self.get_record(lesson)
        if not record.get("begun"):
            self.folder.mkdir(exist_ok=True)
            if not path.exists():
                shutil.copyfile(lesson.unsolved_path, path)
            record["begun"] = True
            self._save()
        return path

    def reset(self, lesson: Lesson) -> Path | None:
        """Begin an exercise anew. Return the backup of the old copy, or None if there was none."""
        path = self.folder / lesson.file
        backup = path.replace(_find_unused_backup(path)) if path.exists() else None
        self.get_record(lesson)["begun"] = False
        self.get_own_copy(lesson)  # makes a new copy
        return backup

    def reset_all(self) -> Path | None:
        """Begin all lessons and the quiz anew. The folder is renamed and kept as a backup.

        Return the backup, or None if there was no folder.
        """
        if not self.folder.exists():
            return None
        backup = self.folder.with_name(f"{self.folder.name}-{time.strftime('%Y%m%d-%H%M%S')}")
        self.folder.rename(backup)
        self._read()  # the file is gone, so this sets the progress to NEW_PROGRESS_JSON
        return backup

    def _save(self) -> None:
        """Replace progress.json in one step, so that other processes never read half of it."""
        self.folder.mkdir(exist_ok=True)
        partial_path = self.path.with_suffix(".partial")
        partial_path.write_text(json.dumps(self._content, indent=1) + "\n", encoding="utf-8")
        os.replace(partial_path, self.path)
        self._stamp = self._read_stamp()


def _find_unused_backup(path: Path) -> Path:
    """Return the first of `ex01.py.bak`, `ex01.py.bak2`, ... that does not exist."""
    backup = path.with_suffix(".py.bak")
    number = 1
    while backup.exists():
        number += 1
        backup = path.with_suffix(f".py.bak{number}")
    return backup


def _now() -> str:
    """Return the local time, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S")
