"""One participant's session: words typed at a prompt, and a check after each save."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import IO

from rich.console import Console

from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import ROOT, StackError
from servers.embedded import EmbeddedError
from workshop import child, render
from workshop.bench import Bench
from workshop.checker import UNDECIDED, Result, announced, check
from workshop.lessons import Lesson, lessons
from workshop.progress import Progress
from workshop.refusal import Refusal
from workshop.saves import Saves
from workshop.teaching import Teaching
from workshop.typed import Typed

#: Seconds between two looks at the participant's files.
LOOK_EVERY = 0.3
#: What the nodes know the file under, whichever lesson it is of.
CHECKED = "exercise.py"


class Session:
    """Runs words. The servers are started when the first check needs them, and stay up."""

    def __init__(self, out: Console, progress: Progress, log: IO[bytes]) -> None:
        self.out = out
        self.progress = progress
        self.log = log
        self.bench: Bench | None = None
        # A copy of its own for each session: two of them may run at a time.
        self._folder = tempfile.TemporaryDirectory(prefix="oversold-workshop-")
        self._own = Path(self._folder.name) / CHECKED
        self._saves = Saves(progress.folder)
        self.typed = Typed(out)

    # --- words ----------------------------------------------------------------------------------

    def run_word(self, line: str) -> int:
        """Do what was typed. The exit code that it would have as a command."""
        word, *rest = line.split() or [""]
        teaching = Teaching(self.out, self.progress, self.typed)
        words: dict[str, Callable[[list[str]], int]] = {
            "predict": self.do_predict,
            "run": self.do_run,
            "check": self.do_check,
            "page": self.do_page,
            "hint": self.do_hint,
            "next": self.do_next,
            "goto": self.do_goto,
            "list": self.do_list,
            "explain": self.do_explain,
            "reset": self.do_reset,
            "solution": self.do_solution,
            "plan": teaching.do_plan,
            "quiz": teaching.do_quiz,
            "report": teaching.do_report,
            "observe": teaching.do_observe,
            "pack": teaching.do_pack,
            "help": self.do_help,
        }
        if word in words:
            return words[word](rest)
        if len(word) == 1 and word in "abcdefgh":
            return self.do_predict([word])
        self.out.print(f"unknown word {word!r}; help lists them all", markup=False)
        return 2

    def do_predict(self, rest: list[str]) -> int:
        """Keep the prediction; without one, ask."""
        lesson = self.progress.lesson
        letter = rest[0].lower() if rest else ""
        letters = ["", *"abcdefgh"[: len(lesson.options)]]
        if letter not in letters:
            self.out.print(f"one of{', '.join(letters)[1:]}; Enter alone is no idea", markup=False)
            return 2
        if not rest:
            render.show_question(self.out, lesson, self.progress.of(lesson)["predicted"])
            if not sys.stdin.isatty():
                return 0
            letter = self.typed.letter("your prediction (Enter: no idea) > ", len(lesson.options))
        self.progress.predicted(lesson, letter)
        self.out.print("kept; run shows what happens", markup=False)
        return 0

    def do_run(self, rest: list[str]) -> int:
        """The lesson's command, once there is a prediction."""
        lesson = self.progress.lesson
        known = self.progress.of(lesson)
        if known["predicted"] is None:
            self.out.print("predict first: guessing is how it sticks (Enter: no idea)")
            self.do_predict([])
            if known["predicted"] is None:
                return 2
        self.out.print(f"$ {lesson.command}", markup=False)
        if lesson.stays and not sys.stdin.isatty():
            self.out.print(f"It stays until Ctrl-C: start it in a terminal. {lesson.then}.")
            return 2
        ends = "; Enter or Ctrl-C here ends it" if lesson.stays else "; Ctrl-C ends it"
        self.out.print(f"[dim]{lesson.then or 'this takes a moment'}{ends}[/]")
        code = child.run(lesson.command, lambda: lesson.stays and self.typed.was_any())
        if code not in (0, 1) and not lesson.stays:
            self.out.print(f"It did not end as it should (exit code {code}): run starts it again.")
            return 2
        render.show_answer(self.out, lesson, known["predicted"])
        return 0

    def do_page(self, rest: list[str]) -> int:
        """The shop's page, on which the participant's file is the lock `mine`."""
        if not sys.stdin.isatty():
            self.out.print("It stays until Ctrl-C: start it in a terminal.")
            return 2
        file = _short(self.progress.file(self.progress.lesson))
        self.out.print("[dim]your file is the lock mine there; Enter or Ctrl-C here ends it[/]")
        child.run(f"make serve ARGS='--mine {file}'", self.typed.was_any)
        return 0

    def do_check(self, rest: list[str]) -> int:
        """Check the participant's file."""
        lesson = self.progress.lesson
        file = self.progress.file(lesson)
        self._saves.ignore(file)
        try:
            self._own.write_bytes(file.read_bytes())
        except OSError:
            result = Result(Refusal("gone", {"file": file.name}))
        else:
            self.out.print(f"checking: {announced(lesson)}", markup=False)
            result = self._checked(lesson)
        if result.exit_code != UNDECIDED:
            self.progress.checked(lesson, result.refusal.code if result.refusal else None)
        render.show_result(self.out, lesson, result.named(CHECKED, file.name), _short(file))
        return result.exit_code

    def _checked(self, lesson: Lesson) -> Result:
        """What became of the copy. After an undecided check the servers are started anew."""
        try:
            result = check(lesson, self._own, self._servers())
        except (StackError, EmbeddedError, ShopUnreachable, OSError) as error:
            if self.bench is None:  # nothing started: what does this machine lack?
                self.out.print(f"{error}\n", markup=False)
                doctor = [sys.executable, "-m", "servers.doctor"]
                subprocess.run(doctor, cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
            result = Result(undecided=f"{error}\nSee {os.path.relpath(self.log.name, ROOT)}.")
        if result.exit_code == UNDECIDED:
            self._stop_servers()
        return result

    def do_hint(self, rest: list[str]) -> int:
        self.out.print(self.progress.hint(self.progress.lesson), markup=False)
        return 0

    def do_next(self, rest: list[str]) -> int:
        """The next lesson; older ones are not checked again."""
        later = [number for number in lessons() if number > self.progress.lesson.number]
        if not later:
            self.out.print("this was the last one; list shows them all")
            return 0
        return self.do_goto([str(later[0])])

    def do_goto(self, rest: list[str]) -> int:
        number = int(rest[0]) if rest and rest[0].isdigit() else 0
        if number not in lessons():
            numbers = ", ".join(map(str, lessons()))
            self.out.print(f"goto takes the number of a lesson: {numbers}")
            return 2
        self.progress.goto(number)
        self.introduce()
        return 0

    def do_list(self, rest: list[str]) -> int:
        render.show_list(self.out, self.progress)
        return 0

    def do_explain(self, rest: list[str]) -> int:
        render.show_text(self.out, self.progress.lesson)
        return 0

    def do_reset(self, rest: list[str]) -> int:
        kept = self.progress.reset(self.progress.lesson)
        self._saves.ignore(self.progress.file(self.progress.lesson))
        self.out.print(f"begun anew{f'; yours is in {_short(kept)}' if kept else ''}", markup=False)
        return 0

    def do_solution(self, rest: list[str]) -> int:
        lesson = self.progress.lesson
        if not self.progress.may_see_the_solution(lesson):
            self.out.print("after you have passed, or after three refusals; hint helps")
            return 2
        file = self.progress.file(lesson)
        mine = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        render.show_solution(self.out, lesson, mine)
        return 0

    def do_help(self, rest: list[str]) -> int:
        render.show_help(self.out)
        return 0

    # --- the session ----------------------------------------------------------------------------

    def introduce(self) -> None:
        """The present lesson: its question, its file, what to type."""
        lesson = self.progress.lesson
        file = self.progress.file(lesson)
        self._saves.ignore(file)
        predicted = self.progress.of(lesson)["predicted"]
        render.show_question(self.out, lesson, predicted)
        todo = "Type a letter, then run." if predicted is None else "run shows it."
        how = "saving it checks it" if self.typed.in_a_session else "check checks it"
        self.out.print(
            f"\n{todo} Then explain, and the exercise:\n{_short(file)} ({how}).", markup=False
        )

    def interact(self) -> None:
        """Words from stdin until quit or the end of input, and a check after each save."""
        self.typed.read()
        self.introduce()
        self._prompt()
        while True:
            try:
                line = self.typed.line(LOOK_EVERY)
            except Empty:
                if self._look_for_saves():
                    self._prompt()
                continue
            if line is None or line.strip() in ("quit", "q", "exit"):
                return
            if line.strip():
                self.run_word(line)
            self._prompt()

    def _look_for_saves(self) -> bool:
        """Check the present exercise if it was saved. Whether anything was printed."""
        present = self.progress.file(self.progress.lesson)
        saved = self._saves.saved()
        for path in saved:
            self.out.print()
            if path == present:
                self.do_check([])
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

    def close(self) -> None:
        """Stop the servers, and remove what the session made for itself."""
        self._stop_servers()
        self._folder.cleanup()

    def _stop_servers(self) -> None:
        if self.bench is not None:
            self.bench.stop()
            self.bench = None

    def _servers(self) -> Bench:
        if self.bench is None:
            bench = Bench(self._own, log=self.log, progress=self._step)
            bench.__enter__()
            self.bench = bench
        return self.bench

    def _step(self, step: str) -> None:
        self.out.print(f"[dim]{step}[/]")


def _short(path: Path) -> str:
    """The path as one types it from the project's folder."""
    return os.path.relpath(path, ROOT)
