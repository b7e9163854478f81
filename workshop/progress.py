"""A participant's progress: mine/progress.json, to read and to copy to another laptop."""

import json
import os
import shutil
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from workshop.lessons import HERE, Lesson, lessons

#: Copies of the exercises, and the progress; git ignores it.
MINE = HERE / "mine"
#: Refusals after which the solution is shown before the exercise is passed.
TRIES_UNTIL_SOLUTION = 3
#: The progress at the beginning.
NEW = '{"lesson": 1, "lessons": {}, "quiz": {}}'


class DamagedProgress(RuntimeError):
    """progress.json cannot be read. Correct it, or remove it: the exercises stay as they are."""

    def __init__(self, path: Path, error: Exception) -> None:
        super().__init__(f"{path} cannot be read ({error}): correct it, or remove it")


class Progress:
    """The present lesson, and for each lesson what was predicted, tried and passed."""

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

    def of(self, lesson: Lesson) -> dict[str, Any]:
        """Return the progress in one lesson."""
        record: dict[str, Any] = self._saved["lessons"].setdefault(
            str(lesson.number),
            {"predicted": None, "right": None, "tries": 0, "hints": 0, "codes": []},
        )
        return record

    def goto(self, number: int) -> None:
        """Make this the present lesson."""
        self._saved["lesson"] = number
        self._save()

    def predicted(self, lesson: Lesson, letter: str) -> bool:
        """Keep a prediction; "" is "no idea". False: the answer has been seen, nothing is kept."""
        record = self.of(lesson)
        if record.get("seen"):
            return False
        record.update(predicted=letter, right=letter == lesson.answer, at=_now())
        self._save()
        return True

    def seen(self, lesson: Lesson) -> None:
        """The answer was shown: the prediction stays what it is."""
        self.of(lesson)["seen"] = True
        self._save()

    def hint(self, lesson: Lesson) -> str:
        """Return the next hint; the last one again when there are no more."""
        record = self.of(lesson)
        record["hints"] = min(record["hints"] + 1, len(lesson.hints))
        self._save()
        return lesson.hints[int(record["hints"]) - 1]

    def checked(self, lesson: Lesson, code: str | None) -> None:
        """Keep the outcome of a check: the code of a refusal, or None where it passed."""
        record = self.of(lesson)
        record["tries"] += 1
        if code is None:
            record.setdefault("passed_at", _now())
        else:
            record["codes"].append(code)
        self._save()

    def undecided(self, lesson: Lesson, code: bytes) -> bool:
        """Keep that this code could not be decided. Return whether it was undecided before: then
        it counts as a try."""
        record = self.of(lesson)
        digest = sha256(code).hexdigest()
        again = record.get("undecided") == digest
        record["undecided"] = digest
        self._save()
        if again:
            self.checked(lesson, "undecided")
        return again

    def passed(self, lesson: Lesson) -> bool:
        """Return whether the exercise has passed once."""
        return "passed_at" in self.of(lesson)

    def may_see_the_solution(self, lesson: Lesson) -> bool:
        """Return whether the exercise has passed, or was refused three times."""
        return self.passed(lesson) or len(self.of(lesson)["codes"]) >= TRIES_UNTIL_SOLUTION

    @property
    def quiz(self) -> dict[str, str]:
        """The answers to the quiz, `before` and `after`."""
        return dict(self._saved["quiz"])

    def quizzed(self, answers: str) -> None:
        """Keep the answers to the quiz: the first time as `before`, then as `after`."""
        self._saved["quiz"]["after" if "before" in self._saved["quiz"] else "before"] = answers
        self._save()

    def file(self, lesson: Lesson) -> Path:
        """The participant's copy of the exercise; made at the first call, and not made again if it
        is gone since."""
        path = self.folder / lesson.file
        record = self.of(lesson)
        if not record.get("begun"):
            self.folder.mkdir(exist_ok=True)
            if not path.exists():
                shutil.copyfile(lesson.shipped, path)
            record["begun"] = True
            self._save()
        return path

    def reset(self, lesson: Lesson) -> Path | None:
        """Begin an exercise anew. Return where the old copy is kept, if there was one."""
        path = self.folder / lesson.file
        kept = path.replace(_unused_backup(path)) if path.exists() else None
        self.of(lesson)["begun"] = False
        self.file(lesson)
        return kept

    def for_the_next_room(self) -> Path | None:
        """Begin all lessons anew, for the next participant. Return where the old files are now."""
        if not self.folder.exists():
            return None
        kept = self.folder.with_name(f"{self.folder.name}-{time.strftime('%Y%m%d-%H%M%S')}")
        self.folder.rename(kept)
        self._saved = json.loads(NEW)
        return kept

    def _save(self) -> None:
        self.folder.mkdir(exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self._saved, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, self.path)


def _unused_backup(path: Path) -> Path:
    """Return the first of `ex01.py.bak`, `ex01.py.bak2`, ... that is not there yet."""
    backup = path.with_suffix(".py.bak")
    number = 1
    while backup.exists():
        number += 1
        backup = path.with_suffix(f".py.bak{number}")
    return backup


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S")
