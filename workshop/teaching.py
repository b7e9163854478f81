"""The words for facilitators, and for authors of lessons."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Console

from workshop import observe, plan, render
from workshop.lessons import lessons
from workshop.pack import pack
from workshop.progress import Progress
from workshop.quiz import Question, questions, score
from workshop.render import WIDTH
from workshop.typed import Typed


class Teaching:
    """Runs the words plan, quiz, report, pack and observe."""

    def __init__(self, out: Console, progress: Progress, typed: Typed) -> None:
        self.out = out
        self.progress = progress
        self.typed = typed

    def do_plan(self, rest: list[str]) -> int:
        """A facilitator's plan of so many minutes."""
        known = ", ".join(map(str, plan.plans()))
        if not rest or rest[0] not in known.split(", "):
            self.out.print(f"plan takes minutes: {known}")
            return 2
        self.out.print("\n".join(plan.lines(int(rest[0]))), markup=False, soft_wrap=True)
        return 0

    def do_quiz(self, rest: list[str]) -> int:
        """Ask the eight questions; the first time counts as before, every later one as after."""
        if rest and rest[0].isdigit():
            return self._show_question_of_the_quiz(int(rest[0]))
        if rest:
            answers = rest[0].lower()
            if len(answers) != len(questions()) or set(answers) - set("abcd-"):
                self.out.print(f"give {len(questions())} letters, a to d, or - for no idea")
                return 2
        elif sys.stdin.isatty():
            answers = "".join(self._ask(question) for question in questions())
        else:
            self.out.print("quiz takes eight letters where there is no terminal: quiz cbbcbcca")
            return 2
        self.progress.quizzed(answers)
        self.out.print(f"{score(answers)} of {len(questions())}", markup=False)
        return 0

    def _show_question_of_the_quiz(self, number: int) -> int:
        """One question to project, without its answer."""
        if not 1 <= number <= len(questions()):
            self.out.print(f"the quiz has the questions 1 to {len(questions())}")
            return 2
        self._print_question(questions()[number - 1])
        return 0

    def _print_question(self, question: Question) -> None:
        self.out.print(f"\n{question.text}", markup=False)
        for letter, option in zip("abcd", question.options, strict=True):
            self.out.print(f"  {letter}  {option}", markup=False)

    def _ask(self, question: Question) -> str:
        self._print_question(question)
        return self.typed.letter("> ", len(question.options)) or "-"

    def do_report(self, rest: list[str]) -> int:
        """The quiz before and after, the lessons, and what was refused in them."""
        for when, answers in self.progress.quiz.items():
            self.out.print(f"quiz {when}: {score(answers)} of {len(questions())}", markup=False)
        if not self.progress.quiz:
            self.out.print("no quiz yet: quiz asks eight questions", markup=False)
        render.show_list(self.out, self.progress)
        for lesson in lessons().values():
            if codes := self.progress.of(lesson)["codes"]:
                begins = f"lesson {lesson.number} refused: "
                self.out.print(render.hanging(begins, ", ".join(codes), WIDTH), markup=False)
        return 0

    def do_pack(self, rest: list[str]) -> int:
        """A folder for a room without internet."""
        folder = Path(" ".join(rest) or f"oversold-pack-{time.strftime('%Y-%m-%d')}")
        self.out.print(pack(folder.resolve()), markup=False)
        return 0

    def do_observe(self, rest: list[str]) -> int:
        """Run what all lessons show, and write down what came of it: for authors of lessons."""
        found = observe.observe()
        observe.write(found)
        wrong = [each.number for each in lessons().values() if not observe.holds(each, found)]
        for number in wrong:
            self.out.print(f"lesson {number}: its answer is not what was observed")
        return 1 if wrong else 0
