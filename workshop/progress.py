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

#: The folder of the participant's copies of the exercises and of the progress; git ignores it.
MINE = HERE / "mine"
#: The number of refusals after which the solution can be seen without having passed.
TRIES_UNTIL_SOLUTION = 3
#: The content of progress.json at the beginning.
NEW = '{"lesson": 1, "lessons": {}, "quiz": {}}'


class DamagedProgress(RuntimeError):
    """progress.json cannot be read. Correct it, or remove it: the exercises stay as they are."""

    def __init__(self, path: Path, error: Exception) -> None:
        super().__init__(f"{path} cannot be read ({error}): correct it, or remove it")


class Progress:
    """The present lesson, and the predictions and tries of each lesson, saved after each change."""

    def __init__(self, folder: Path = MINE) -> None:
        self.folder = folder
        self.path = folder / "progress.json"
        try:
            text = NEW
            with suppress(FileNotFoundError):
                text = self.path.read_text("utf-8")
            saved = json.loads(text)
            self._saved: dict[str, Any] = {
                "lesson": int(saved["lesson"]),
                "lessons": dict(saved["lessons"]),
                "quiz": dict(saved.get("quiz", {})),
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedProgress(self.path, error) from error
        if self._saved["lesson"] not in lessons():
            self._saved["lesson"] = min(lessons())

    @property
    def lesson(self) -> Lesson:
        """The present lesson."""
        return lessons()[self._saved["lesson"]]

    def record_of(self, lesson: Lesson) -> dict[str, Any]:
        """Return the progress in one lesson."""
        record: dict[str, Any] = self._saved["lessons"].setdefault(
            str(lesson.number),
            {"predicted": None, "right": None, "tries": 0, "hints": 0, "codes": []},
        )
        return record

    def go_to(self, number: int) -> None:
        """Make this the present lesson."""
        self._saved["lesson"] = number
        self._save()

    def keep_prediction(self, lesson: Lesson, letter: str) -> bool:
        """Keep a prediction; "" means "no idea".

        Return whether it was kept: it is not kept once the answer was shown.
        """
        record = self.record_of(lesson)
        if record.get("seen"):
            return False
        record.update(predicted=letter, right=letter == lesson.answer, at=_now())
        self._save()
        return True

    def mark_answer_seen(self, lesson: Lesson) -> None:
        """Note that the answer was shown, so that the prediction cannot be changed any more."""
        self.record_of(lesson)["seen"] = True
        self._save()

    def next_hint(self, lesson: Lesson) -> str:
        """Return the next hint, and after the last hint always the last one."""
        record = self.record_of(lesson)
        record["hints"] = min(record["hints"] + 1, len(lesson.hints))
        self._save()
        return lesson.hints[int(record["hints"]) - 1]

    def record_check(self, lesson: Lesson, code: str | None) -> None:
        """Keep the outcome of a check: the code of its refusal, or None if the exercise passed."""
        record = self.record_of(lesson)
        record.pop("undecided", None)
        record["tries"] += 1
        if code is None:
            record.setdefault("passed_at", _now())
        else:
            record["codes"].append(code)
        self._save()

    def record_undecided(self, lesson: Lesson, code: bytes) -> bool:
        """Record an undecided check. Return whether the previous check was undecided, too.

        Only checks of the same code count. The second undecided check in a row, and each further
        one, counts as a try.

        code  the content of the participant's file
        """
        record = self.record_of(lesson)
        digest = sha256(code).hexdigest()
        is_repeated = record.get("undecided") == digest
        if is_repeated:
            self.record_check(lesson, "undecided")
        record["undecided"] = digest
        self._save()
        return is_repeated

    def has_passed(self, lesson: Lesson) -> bool:
        """Return whether the exercise has ever passed a check."""
        return "passed_at" in self.record_of(lesson)

    def may_see_solution(self, lesson: Lesson) -> bool:
        """Return whether the exercise has passed, or was refused TRIES_UNTIL_SOLUTION times."""
        return (
            self.has_passed(lesson) or len(self.record_of(lesson)["codes"]) >= TRIES_UNTIL_SOLUTION
        )

    @property
    def quiz(self) -> dict[str, str]:
        """The answers to the quiz, `before` and `after`."""
        return dict(self._saved["quiz"])

    def keep_quiz_answers(self, answers: str) -> None:
        """Keep the answers to the quiz: the first ones as `before`, all later ones as `after`."""
        self._saved["quiz"]["after" if "before" in self._saved["quiz"] else "before"] = answers
        self._save()

    def file(self, lesson: Lesson) -> Path:
        """Return the participant's copy of the exercise, and make it at the first call.

        A copy that the participant removes is not made again.
        """
        path = self.folder / lesson.file
        record = self.record_of(lesson)
        if not record.get("begun"):
            self.folder.mkdir(exist_ok=True)
            if not path.exists():
                shutil.copyfile(lesson.shipped, path)
            record["begun"] = True
            self._save()
        return path

    def reset(self, lesson: Lesson) -> Path | None:
        """Begin an exercise anew. Return the backup of the old copy, or None if there was none."""
        path = self.folder / lesson.file
        backup = path.replace(_unused_backup(path)) if path.exists() else None
        self.record_of(lesson)["begun"] = False
        self.file(lesson)
        return backup

    def begin_anew(self) -> Path | None:
        """Begin all lessons anew. Return the folder with the old files, or None without any."""
        if not self.folder.exists():
            return None
        backup = self.folder.with_name(f"{self.folder.name}-{time.strftime('%Y%m%d-%H%M%S')}")
        self.folder.rename(backup)
        self._saved = json.loads(NEW)
        return backup

    def _save(self) -> None:
        self.folder.mkdir(exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self._saved, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, self.path)


def _unused_backup(path: Path) -> Path:
    """Return the first of `ex01.py.bak`, `ex01.py.bak2`, ... that does not exist."""
    backup = path.with_suffix(".py.bak")
    number = 1
    while backup.exists():
        number += 1
        backup = path.with_suffix(f".py.bak{number}")
    return backup


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S")
