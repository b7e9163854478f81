"""The words that a participant types, and what each does."""

import os
import sys
import time
from difflib import unified_diff
from pathlib import Path
from queue import Empty

from rich.console import Console
from rich.markdown import Markdown

from loadtest.stack.stack import ROOT
from workshop import render
from workshop.checker import Checking
from workshop.lessons import HERE, Lesson, lessons
from workshop.progress import Progress
from workshop.refusal import UNDECIDED
from workshop.session import ENDS, Saves, Typed, one_of, run
from workshop.teaching import NotDone, Teaching

#: Seconds between two looks at the participant's files.
LOOK_EVERY = 0.3
#: The words that ask something, which Ctrl-C leaves without ending the session.
ASKING_WORDS = ("quiz", "predict")


class Commands(Teaching):
    """Runs words, one at a time, or those of a session: `run` is do_run, here or in Teaching.
    `saves` looks for what was saved in between."""

    def __init__(self, out: Console, progress: Progress, checking: Checking) -> None:
        super().__init__(out, progress, Typed(out))
        self.saves = Saves(progress.folder)
        self.in_a_session = False
        self._checking = checking

    def session(self) -> None:
        """Words from stdin until quit or the end of input, and a check after each save."""
        self.in_a_session = True
        self.introduce()
        self._prompt()
        while True:
            try:
                line = self.typed.line(LOOK_EVERY)
            except Empty:
                if self._look_for_saves():
                    self._prompt()
                continue
            if line.lower() in ENDS:
                return
            if line:
                self.run(line)
            self._prompt()

    def _look_for_saves(self) -> bool:
        """Check the present exercise if it was saved. Whether anything was printed."""
        present = self.progress.file(self.progress.lesson)
        saved = self.saves.saved()
        for path in saved:
            self.out.print()
            if path == present:
                self.do_check([])
                continue
            for number in (
                lesson.number for lesson in lessons().values() if lesson.file == path.name
            ):
                self.out.print(f"{path.name} is of lesson {number}: goto {number}, then check.")
        return bool(saved)

    def _prompt(self) -> None:
        if self.out.is_terminal:
            self.out.print(f"lesson {self.progress.lesson.number}> ", end="")

    def run(self, line: str) -> int:
        """Do what was typed. The exit code that it would have as a command."""
        word, *rest = line.split() or [""]
        word = word.lower()
        if len(word) == 1 and word in "abcdefgh":
            word, rest = "predict", [word]
        do = getattr(self, f"do_{word}", None)
        try:
            if do is None:
                raise NotDone(f"unknown word {word!r}; help lists them all")
            return do(rest) or 0
        except (NotDone, EOFError) as why:
            self.out.print(str(why), soft_wrap=True)  # a path stays in one piece
            return 2
        except KeyboardInterrupt:
            if not self.in_a_session or word not in ASKING_WORDS:
                raise
            self.out.print(f"\n{word} is left, nothing is kept; quit ends the session")
            return 2

    def _lesson_of(self, word: str, rest: list[str]) -> Lesson:
        """Return the lesson of this number, or the present one. Raise NotDone for anything else."""
        if not rest:
            return self.progress.lesson
        number = int(rest[0]) if len(rest) == 1 and rest[0].isdecimal() else 0
        if number not in lessons():
            raise NotDone(f"{word} takes nothing, or the number of a lesson: {_numbers()}")
        return lessons()[number]

    def _refuse_more(self, word: str, rest: list[str]) -> None:
        """Raise NotDone if anything follows a word that means the present lesson."""
        if rest:
            number = rest[0] if rest[0] in map(str, lessons()) else str(self.progress.lesson.number)
            raise NotDone(f"{word} takes nothing after it; another lesson: goto {number}")

    def do_predict(self, rest: list[str]) -> None:
        """Keep the prediction; without one, ask."""
        lesson = self.progress.lesson
        letter = rest[0].lower() if rest else ""
        letters = "abcdefgh"[: len(lesson.options)]
        if rest and letter not in list(letters):
            raise NotDone(one_of(letters))
        if not rest:
            render.show_question(self.out, lesson, self.progress.of(lesson)["predicted"])
            if not sys.stdin.isatty():
                return
            letter = self.typed.letter("your prediction (Enter: no idea) > ", letters)
        if not self.progress.predicted(lesson, letter):
            raise NotDone("you have seen the answer: your prediction stays what it was")
        self.out.print("kept; run shows what happens")

    def do_run(self, rest: list[str]) -> int:
        """The lesson's command, once there is a prediction."""
        self._refuse_more("run", rest)
        lesson = self.progress.lesson
        record = self.progress.of(lesson)
        if record["predicted"] is None:
            self.out.print("predict first: guessing is how it sticks (Enter: no idea)")
            self.do_predict([])
            if record["predicted"] is None:
                return 2
        render.show_instructions(self.out, lesson)
        self.out.print(f"$ {lesson.command}")
        if lesson.stays and not sys.stdin.isatty():
            raise NotDone("It stays until Ctrl-C: start it in a terminal.")
        ends = "Enter or Ctrl-C here ends it" if lesson.stays else "a moment; Ctrl-C ends it"
        self.out.print(ends, style="dim")
        before = time.time()
        code = run(lesson.command, self._enter if lesson.stays else lambda: False)
        if code not in (0, 1) and not lesson.stays:
            raise NotDone(f"It did not end as it should (exit code {code}): run starts it again.")
        if lesson.command.startswith("make faults"):
            render.show_story(self.out, before)
        elif lesson.command.startswith("make matrix"):
            self.out.print(render.WORDS_OF_A_TABLE, style="dim")
        letter, right = record["predicted"], f"{lesson.answer}: {lesson.option(lesson.answer)}"
        if letter == lesson.answer:
            self.out.print(f"You predicted it: {right}.", style="green")
        else:
            beginning = f"You predicted {letter}; it" if letter else "It"
            self.out.print(f"{beginning} is {right}.")
            if letter:
                belief = lesson.misconceptions[letter]
                self.out.print(f"A common reason for {letter}, which does not hold: {belief}")
        self.progress.seen(lesson)
        self.out.print(f"explain says why. Then the exercise: {self._file}")
        return 0

    @property
    def _file(self) -> str:
        """The path of the present exercise, relative to the project's folder."""
        return _short(self.progress.file(self.progress.lesson))

    def _enter(self) -> bool:
        """Return whether Enter was typed, or a word that ends a session.

        Any other word is done while the command goes on.
        """
        try:
            line = self.typed.line(0)
        except Empty:
            return False
        if not line or line.lower().split()[0] in (*ENDS, "run", "page", "next", "goto"):
            return True
        self.run(line)
        return False

    def do_page(self, rest: list[str]) -> None:
        """The shop's page, on which the participant's file is the lock `mine`."""
        self._refuse_more("page", rest)
        if not sys.stdin.isatty():
            raise NotDone("It stays until Ctrl-C: start it in a terminal.")
        ends = "your file is the lock mine there; Enter or Ctrl-C here ends it"
        self.out.print(ends, style="dim")
        run(f"make serve ARGS='--mine {self._file}'", self._enter)

    def do_check(self, rest: list[str]) -> int:
        """Check the participant's file of this lesson, or of the lesson of a number."""
        lesson = self._lesson_of("check", rest)
        file = self.progress.file(lesson)
        self.saves.ignore(file)
        result = self._checking.check(lesson, file)
        again = False
        if result.exit_code == UNDECIDED:
            again = self.progress.undecided(lesson, file.read_bytes())
        else:
            self.progress.checked(lesson, result.refusal.code if result.refusal else None)
        render.show_result(self.out, lesson, result, _short(file), again=again)
        return result.exit_code

    def do_hint(self, rest: list[str]) -> None:
        self.out.print(self.progress.hint(self._lesson_of("hint", rest)))

    def do_next(self, rest: list[str]) -> None:
        """The next lesson; older ones are not checked again."""
        self._refuse_more("next", rest)
        number = self.progress.lesson.number + 1
        if number in lessons():
            self.do_goto([str(number)])
        else:
            self.out.print("this was the last one; list shows them all")

    def do_goto(self, rest: list[str]) -> None:
        number = int(rest[0]) if rest and rest[0].isdecimal() else 0
        if number not in lessons():
            raise NotDone(f"goto takes the number of a lesson: {_numbers()}")
        self.progress.goto(number)
        self.introduce()

    def do_list(self, rest: list[str]) -> None:
        self._refuse_more("list", rest)
        render.show_list(self.out, self.progress)

    def do_explain(self, rest: list[str]) -> None:
        """The lesson's text; of one without a prediction only what gives nothing away."""
        lesson = self._lesson_of("explain", rest)
        predicted = self.progress.of(lesson)["predicted"] is not None
        render.show_text(self.out, lesson, whole=predicted)
        if predicted:
            self.progress.seen(lesson)

    def do_reset(self, rest: list[str]) -> None:
        """Begin this exercise anew, or that of a number; `reset all`: everything, for the next
        room."""
        if rest == ["all"]:
            kept = self.progress.for_the_next_room()
            self.saves = Saves(self.progress.folder)
            backup_note = f"; what was there is in {_short(kept)}" if kept else ""
            self.out.print(f"all lessons begin anew{backup_note}")
            return
        lesson = self._lesson_of("reset", rest)
        kept = self.progress.reset(lesson)
        self.saves.ignore(self.progress.file(lesson))
        backup = f"; yours is in {_short(kept)}" if kept else ""
        self.out.print(f"lesson {lesson.number} begun anew{backup}")

    def do_solution(self, rest: list[str]) -> None:
        """Ours, as a change of the participant's."""
        lesson = self._lesson_of("solution", rest)
        if not self.progress.may_see_the_solution(lesson):
            raise NotDone("after you have passed, or after three refusals; hint helps")
        file = self.progress.file(lesson)
        mine = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        ours = lesson.solved()
        if _without_blank_lines(mine) == _without_blank_lines(ours):
            self.out.print("yours is the same")
            return
        diff = unified_diff(mine.splitlines(), ours.splitlines(), "yours", "ours", lineterm="", n=2)
        self.out.print("\n".join(diff))

    def do_help(self, rest: list[str]) -> None:
        """Every word; after it redis, lua or sell_one: the part of the printable sheet on what an
        exercise may be made of."""
        if not rest:
            for word, explanation in render.HELP.items():
                self._show(f"  {word:10} ", explanation)
            return
        parts = (HERE / "SHEET.md").read_text(encoding="utf-8").split("\n## ")[1:]
        matches = [part for part in parts if rest[0].lower() in part.partition("\n")[0].lower()]
        if not matches:
            raise NotDone("help takes redis, lua or sell_one, or nothing")
        self.out.print(Markdown(f"## {matches[0]}"))

    def introduce(self) -> None:
        """The present lesson: its question, its file, what to type."""
        lesson = self.progress.lesson
        self.saves.ignore(self.progress.file(lesson))
        predicted = self.progress.of(lesson)["predicted"]
        render.show_question(self.out, lesson, predicted)
        todo = "Type a letter, then run." if predicted is None else "run shows it."
        how = "saving it checks it" if self.in_a_session else "check checks it"
        self.out.print(f"\n{todo} Then explain, and the exercise:\n{self._file} ({how}).")
        self.out.print("hint helps, quiz asks eight questions, help lists all words.")


def _numbers() -> str:
    """Return the numbers that a lesson can have, for a message."""
    return f"{min(lessons())} to {max(lessons())}"


def _without_blank_lines(code: str) -> list[str]:
    """Return the lines of this code that have something in them, without the spaces behind it."""
    return [line.rstrip() for line in code.splitlines() if line.strip()]


def _short(path: Path) -> str:
    """Return the path relative to the project's folder."""
    return os.path.relpath(path, ROOT)
