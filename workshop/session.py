"""One participant's session: words typed at a prompt, and a check after each save."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from typing import IO

from rich.console import Console

from loadtest.stack.stack import ROOT
from workshop import plan, render
from workshop.bench import Bench
from workshop.checker import UNDECIDED, announced, check
from workshop.lessons import lessons
from workshop.progress import Progress
from workshop.quiz import Question, questions, score

#: Seconds between two looks at the participant's file. No inotify: WSL and containers have none
#: that can be relied on.
LOOK_EVERY = 0.3


class Session:
    """Runs words. The servers are started when the first check needs them, and stay up."""

    def __init__(self, out: Console, progress: Progress, log: IO[bytes]) -> None:
        self.out = out
        self.progress = progress
        self.log = log
        self.bench: Bench | None = None
        self._own = progress.folder / ".checked.py"
        self._stamp: tuple[int, int] | None = None
        self._typed: Queue[str | None] | None = None

    # --- words ----------------------------------------------------------------------------------

    def run_word(self, line: str) -> int:
        """Do what was typed. The exit code that it would have as a command."""
        word, *rest = line.split() or [""]
        words: dict[str, Callable[[list[str]], int]] = {
            "predict": self.do_predict,
            "run": self.do_run,
            "check": self.do_check,
            "hint": self.do_hint,
            "next": self.do_next,
            "goto": self.do_goto,
            "list": self.do_list,
            "explain": self.do_explain,
            "reset": self.do_reset,
            "solution": self.do_solution,
            "plan": self.do_plan,
            "quiz": self.do_quiz,
            "report": self.do_report,
            "help": self.do_help,
        }
        if word in words:
            return words[word](rest)
        if len(word) == 1 and word in "abcdefgh":
            return self.do_predict([word])
        self.out.print(f"unknown word {word!r}", markup=False)
        return self.do_help(rest) or 2

    def do_predict(self, rest: list[str]) -> int:
        """Keep the prediction; without one, ask."""
        lesson = self.progress.lesson
        letter = rest[0].lower() if rest else ""
        if letter and letter not in "abcdefgh"[: len(lesson.options)]:
            letters = ", ".join("abcdefgh"[: len(lesson.options)])
            self.out.print(f"one of {letters}; Enter alone is no idea", markup=False)
            return 2
        if not rest:
            render.show_question(self.out, lesson, self.progress.of(lesson)["predicted"])
            if not sys.stdin.isatty():
                return 0
            letter = self._answer("your prediction (Enter: no idea) > ")[:1]
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
        done = subprocess.run(["bash", "-c", lesson.command], cwd=ROOT, check=False)
        render.show_answer(self.out, lesson, known["predicted"])
        return 0 if done.returncode in (0, 1) else 2

    def do_check(self, rest: list[str]) -> int:
        """Check the participant's file."""
        lesson = self.progress.lesson
        file = self.progress.file(lesson)
        self._stamp = _stamp(file)
        self.out.print(f"checking: {announced(lesson)}", markup=False)
        # A file of its own: the nodes know one name for all lessons.
        self._own.write_bytes(file.read_bytes())
        result = check(lesson, self._own, self._servers())
        if result.exit_code != UNDECIDED:
            self.progress.checked(lesson, result.refusal.code if result.refusal else None)
        render.show_result(self.out, lesson, result, _short(file))
        return result.exit_code

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
        self.out.print(f"begun anew{f'; yours is in {_short(kept)}' if kept else ''}", markup=False)
        return 0

    def do_solution(self, rest: list[str]) -> int:
        lesson = self.progress.lesson
        if not self.progress.may_see_the_solution(lesson):
            self.out.print("after you have passed, or after three refusals; hint helps")
            return 2
        mine = self.progress.file(lesson).read_text(encoding="utf-8", errors="replace")
        render.show_solution(self.out, lesson, mine)
        return 0

    def do_plan(self, rest: list[str]) -> int:
        """A facilitator's plan of so many minutes."""
        known = ", ".join(map(str, plan.plans()))
        if not rest or rest[0] not in known.split(", "):
            self.out.print(f"plan takes minutes: {known}")
            return 2
        self.out.print("\n".join(plan.lines(int(rest[0]))), markup=False)
        return 0

    def do_quiz(self, rest: list[str]) -> int:
        """Ask the eight questions; the first time counts as before, every later one as after."""
        if rest:
            answers = rest[0].lower()
        elif sys.stdin.isatty():
            answers = "".join(self._ask(question) for question in questions())
        else:
            self.out.print("quiz takes eight letters where there is no terminal: quiz cbbcbcca")
            return 2
        self.progress.quizzed(answers)
        self.out.print(f"{score(answers)} of {len(questions())}", markup=False)
        return 0

    def _ask(self, question: Question) -> str:
        self.out.print(f"\n{question.text}", markup=False)
        for letter, option in zip("abcd", question.options, strict=True):
            self.out.print(f"  {letter}  {option}", markup=False)
        return self._answer("> ")[:1] or "-"

    def _answer(self, prompt: str) -> str:
        """One line that is typed now, in lower case; in a session its reader has stdin."""
        self.out.print(prompt, end="", markup=False)
        line = sys.stdin.readline() if self._typed is None else self._typed.get()
        return (line or "").strip().lower()

    def do_report(self, rest: list[str]) -> int:
        """The quiz before and after, and the lessons."""
        for when, answers in self.progress.quiz.items():
            self.out.print(f"quiz {when}: {score(answers)} of {len(questions())}", markup=False)
        return self.do_list([])

    def do_help(self, rest: list[str]) -> int:
        render.show_help(self.out)
        return 0

    # --- the session ----------------------------------------------------------------------------

    def introduce(self) -> None:
        """The present lesson: its question, its file, what to type."""
        lesson = self.progress.lesson
        file = self.progress.file(lesson)
        self._stamp = _stamp(file)
        render.show_question(self.out, lesson, self.progress.of(lesson)["predicted"])
        self.out.print(
            f"\nType a letter, then run. The exercise: {_short(file)}; saving it checks it.",
            markup=False,
        )

    def interact(self) -> None:
        """Words from stdin until quit or the end of input, and a check after each save."""
        typed = self._typed = Queue()
        threading.Thread(target=_read, args=(typed,), daemon=True).start()
        self.introduce()
        while True:
            try:
                line = typed.get(timeout=LOOK_EVERY)
            except Empty:
                if self._was_saved():
                    self.do_check([])
                continue
            if line is None or line.strip() in ("quit", "q", "exit"):
                return
            if line.strip():
                self.run_word(line)

    def close(self) -> None:
        """Stop the servers."""
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

    def _was_saved(self) -> bool:
        return _stamp(self.progress.file(self.progress.lesson)) != self._stamp


def _read(typed: Queue[str | None]) -> None:
    for line in sys.stdin:
        typed.put(line)
    typed.put(None)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _short(path: Path) -> str:
    """The path as one types it from the project's folder."""
    return os.path.relpath(path, ROOT)
