"""The words that a participant types, and what each does."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from loadtest.stack.stack import ROOT
from workshop import render
from workshop.checker import Checking
from workshop.lessons import lessons
from workshop.progress import Progress
from workshop.refusal import UNDECIDED
from workshop.session import ENDS, Saves, Typed, run
from workshop.teaching import Teaching


class Words:
    """Runs words, one at a time: `run` is do_run, here or in Teaching. `saves` looks for what was
    saved in between."""

    def __init__(self, out: Console, progress: Progress, checking: Checking) -> None:
        self.out = out
        self.progress = progress
        self.typed = Typed(out)
        self.saves = Saves(progress.folder)
        self._checking = checking

    def run(self, line: str) -> int:
        """Do what was typed. The exit code that it would have as a command."""
        word, *rest = line.split() or [""]
        word = word.lower()
        for place in (self, Teaching(self.out, self.progress, self.typed)):
            if do := getattr(place, f"do_{word}", None):
                return int(do(rest))
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
            self.out.print(f"one of{', '.join(letters)[1:]}; only Enter: no idea", markup=False)
            return 2
        if not rest:
            render.show_question(self.out, lesson, self.progress.of(lesson)["predicted"])
            if not sys.stdin.isatty():
                return 0
            letter = self.typed.letter("your prediction (Enter: no idea) > ", len(lesson.options))
        if not self.progress.predicted(lesson, letter):
            self.out.print("you have seen the answer: your prediction stays what it was")
            return 2
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
        before = time.time()
        code = run(lesson.command, self._enter if lesson.stays else lambda: False)
        if code not in (0, 1) and not lesson.stays:
            self.out.print(f"It did not end as it should (exit code {code}): run starts it again.")
            return 2
        if lesson.command.startswith("make faults"):
            render.show_story(self.out, before)
        render.show_answer(self.out, lesson, known["predicted"])
        self.progress.seen(lesson)
        file = _short(self.progress.file(lesson))
        self.out.print(f"explain says why. Then the exercise: {file}", markup=False)
        return 0

    def _enter(self) -> bool:
        """Whether Enter was typed, or a word that ends a session; any other word is done while the
        command goes on."""
        line = self.typed.any_line()
        if line and line.lower().split()[0] not in (*ENDS, "run", "page", "next", "goto"):
            self.run(line)
            return False
        return line is not None

    def do_page(self, rest: list[str]) -> int:
        """The shop's page, on which the participant's file is the lock `mine`."""
        if not sys.stdin.isatty():
            self.out.print("It stays until Ctrl-C: start it in a terminal.")
            return 2
        file = _short(self.progress.file(self.progress.lesson))
        self.out.print("[dim]your file is the lock mine there; Enter or Ctrl-C here ends it[/]")
        run(f"make serve ARGS='--mine {file}'", self._enter)
        return 0

    def do_check(self, rest: list[str]) -> int:
        """Check the participant's file."""
        lesson = self.progress.lesson
        file = self.progress.file(lesson)
        self.saves.ignore(file)
        result = self._checking.check(lesson, file)
        if result.exit_code == UNDECIDED:
            result = replace(result, again=self.progress.undecided(lesson, file.read_bytes()))
        else:
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
        """The lesson's text; of one without a prediction only what gives nothing away."""
        lesson = self.progress.lesson
        predicted = self.progress.of(lesson)["predicted"] is not None
        render.show_text(self.out, lesson, whole=predicted)
        if predicted:
            self.progress.seen(lesson)
        return 0

    def do_reset(self, rest: list[str]) -> int:
        """Begin the exercise anew; `reset all`: everything, for the next room."""
        if rest == ["all"]:
            kept = self.progress.for_the_next_room()
            self.saves = Saves(self.progress.folder)
            said = f"; what was there is in {_short(kept)}" if kept else ""
            self.out.print(f"all lessons begin anew{said}", markup=False)
            return 0
        kept = self.progress.reset(self.progress.lesson)
        self.saves.ignore(self.progress.file(self.progress.lesson))
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
        """Every word; after it redis, lua or sell_one: what an exercise may be made of."""
        if rest and not render.show_sheet(self.out, rest[0].lower()):
            self.out.print("help takes redis, lua or sell_one, or nothing", markup=False)
            return 2
        if not rest:
            render.show_help(self.out)
        return 0

    def introduce(self) -> None:
        """The present lesson: its question, its file, what to type."""
        lesson = self.progress.lesson
        file = self.progress.file(lesson)
        self.saves.ignore(file)
        predicted = self.progress.of(lesson)["predicted"]
        render.show_question(self.out, lesson, predicted)
        todo = "Type a letter, then run." if predicted is None else "run shows it."
        how = "saving it checks it" if self.typed.in_a_session else "check checks it"
        self.out.print(
            f"\n{todo} Then explain, and the exercise:\n{_short(file)} ({how}).", markup=False
        )


def _short(path: Path) -> str:
    """The path as one types it from the project's folder."""
    return os.path.relpath(path, ROOT)
