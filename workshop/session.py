"""One participant's session: words typed at a prompt, and a check after each save."""

from __future__ import annotations

from queue import Empty

from rich.console import Console

from workshop.lessons import lessons
from workshop.progress import Progress
from workshop.words import Words

#: Seconds between two looks at the participant's files.
LOOK_EVERY = 0.3


class Session:
    """Reads words until the end, and looks for saves in between."""

    def __init__(self, out: Console, progress: Progress, words: Words) -> None:
        self.out = out
        self.progress = progress
        self.words = words

    def interact(self) -> None:
        """Words from stdin until quit or the end of input, and a check after each save."""
        self.words.typed.read()
        self.words.introduce()
        self._prompt()
        while True:
            try:
                line = self.words.typed.line(LOOK_EVERY)
            except Empty:
                if self._look_for_saves():
                    self._prompt()
                continue
            if line is None or line.strip() in ("quit", "q", "exit"):
                return
            if line.strip():
                self.words.run(line)
            self._prompt()

    def _look_for_saves(self) -> bool:
        """Check the present exercise if it was saved. Whether anything was printed."""
        present = self.progress.file(self.progress.lesson)
        saved = self.words.saves.saved()
        for path in saved:
            self.out.print()
            if path == present:
                self.words.do_check([])
                continue
            for lesson in lessons().values():
                if lesson.file == path.name:
                    self.out.print(
                        f"{path.name} is of lesson {lesson.number}: goto {lesson.number}, "
                        "then check."
                    )
        return bool(saved)

    def _prompt(self) -> None:
        if self.out.is_terminal:
            self.out.print(f"lesson {self.progress.lesson.number}> ", end="", markup=False)
