"""The commands of a participant, typed in a session or passed to `python -m workshop`."""

import os
import sys
import time
from difflib import unified_diff
from pathlib import Path
from queue import Empty

from rich.console import Console
from rich.markdown import Markdown

from loadtest.stack.stack import ROOT
from servers.signals import accept_next_signal
from workshop import render
from workshop.checker import Checker
from workshop.lessons import (
    HERE,
    OPTION_LETTERS,
    Lesson,
    describe_lesson_numbers,
    find_lesson,
    lessons,
)
from workshop.progress import Progress
from workshop.refusal import UNDECIDED
from workshop.session import (
    QUIT_COMMANDS,
    SaveWatcher,
    TypedLines,
    describe_choices,
    run_shell_command,
)
from workshop.teaching import CommandError, FacilitatorCommands

#: Time between two polls for files that the participant saved.
SAVE_POLL_INTERVAL_SECONDS = 0.3
#: Commands that ask questions: Ctrl-C leaves them without ending the session.
COMMANDS_WITH_QUESTIONS = ("quiz", "predict")
#: Commands that cannot run during the command of a lesson: typing one ends that command.
COMMANDS_THAT_END_A_RUN = (*QUIT_COMMANDS, "run", "page", "next", "goto")
#: Exit codes with which a lesson's command has not failed. 1 means that a verdict is not the
#: expected one.
RUN_EXIT_CODES = (0, 1)
#: The exit code of a command that is unknown, cannot be run now, or lacks an answer to its question
#: because the input ended, or because Ctrl-C was pressed in a session.
NOT_DONE_EXIT_CODE = 2


class Commands(FacilitatorCommands):
    """Runs a single command, or the commands that are typed in a session.

    A command is the method do_<command>, here or in FacilitatorCommands. It gets the words after
    the command, and returns its exit code, or None for 0.
    """

    def __init__(self, out: Console, progress: Progress, checker: Checker) -> None:
        super().__init__(out, progress, TypedLines(out))
        self.save_watcher = SaveWatcher(progress.folder)
        self.in_a_session = False
        self._checker = checker

    def run_session(self) -> None:
        """Run commands from stdin until `quit` or the end of input. Check each saved exercise."""
        self.in_a_session = True
        self.introduce_lesson()
        self._print_prompt()
        while True:
            try:
                line = self.typed_lines.read_line(SAVE_POLL_INTERVAL_SECONDS)
            except Empty:
                if self._handle_saves():
                    self._print_prompt()
                continue
            if line.lower() in QUIT_COMMANDS:
                return
            if line:
                self.run(line)
            self._print_prompt()

    def _handle_saves(self) -> bool:
        """Check the current exercise if it was saved. Return whether any file was saved.

        If the exercise of another lesson was saved, print how to check it.
        """
        current_file = self.progress.get_own_copy(self.progress.lesson)
        saved_files = self.save_watcher.find_saved_files()
        for path in saved_files:
            self.out.print()
            if path == current_file:
                self.do_check([])
                continue
            for lesson in lessons().values():
                if lesson.file == path.name:
                    self.out.print(
                        f"{path.name} belongs to lesson {lesson.number}: type goto "
                        f"{lesson.number}, then check"
                    )
        return bool(saved_files)

    def _print_prompt(self) -> None:
        if self.out.is_terminal:
            self.out.print(f"lesson {self.progress.lesson.number}> ", end="")

    def run(self, line: str) -> int:
        """Run a typed line: a command and its arguments. Return its exit code."""
        return self.run_words(line.split())

    def run_words(self, words: list[str]) -> int:
        """Run a command with its arguments. Return its exit code.

        A letter such as `a` stands for `predict a`. If the command cannot be run, print the reason
        and return NOT_DONE_EXIT_CODE.
        """
        command, *arguments = words or [""]
        command = command.lower()
        if len(command) == 1 and command in OPTION_LETTERS:
            arguments = [command]
            command = "predict"
        method = getattr(self, f"do_{command}", None)  # as cmd.Cmd of the standard library does
        try:
            if method is None:
                raise CommandError(f"unknown command {command!r}; help lists all commands")
            return method(arguments) or 0
        except (CommandError, EOFError) as error:
            self.out.print(str(error), soft_wrap=True)  # a path must not be broken into two lines
            return NOT_DONE_EXIT_CODE
        except KeyboardInterrupt:
            if not self.in_a_session or command not in COMMANDS_WITH_QUESTIONS:
                raise
            accept_next_signal()  # otherwise the next Ctrl-C would be ignored
            self.out.print(
                f"\n{command} was interrupted, and its answers are not kept. Type quit to leave."
            )
            return NOT_DONE_EXIT_CODE

    def _parse_lesson(self, command: str, arguments: list[str]) -> Lesson:
        """Return the lesson whose number is the argument; without arguments, the current lesson.

        Raises CommandError for any other arguments.

        command  the name of the command, for the error's message
        """
        if not arguments:
            return self.progress.lesson
        lesson = find_lesson(arguments[0]) if len(arguments) == 1 else None
        if lesson is None:
            raise CommandError(
                f"{command} takes no argument, or the number of a lesson: "
                f"{describe_lesson_numbers()}"
            )
        return lesson

    def _refuse_arguments(self, command: str, arguments: list[str]) -> None:
        """Raise CommandError if there are arguments, because this command takes none.

        The participant may have typed the number of a lesson. So the message contains the command
        that goes to this lesson.
        """
        if not arguments:
            return
        lesson = find_lesson(arguments[0]) or self.progress.lesson
        raise CommandError(f"{command} takes no argument; for another lesson: goto {lesson.number}")

    def do_predict(self, arguments: list[str]) -> None:
        """Record the predicted letter. Without an argument, ask for it if there is a terminal."""
        lesson = self.progress.lesson
        letters = OPTION_LETTERS[: len(lesson.options)]
        if arguments:
            letter = arguments[0].lower()
            if letter not in list(letters):  # the string "abcd" would contain "ab"
                raise CommandError(describe_choices(letters))
        else:
            render.show_question(self.out, lesson, self.progress.get_record(lesson)["predicted"])
            if not sys.stdin.isatty():
                return
            letter = self.typed_lines.ask_letter("your prediction (Enter: no idea) > ", letters)
        if not self.progress.record_prediction(lesson, letter):
            raise CommandError("you have seen the answer: your prediction stays what it was")
        self.out.print("your prediction is kept; type run to see what happens")

    def do_run(self, arguments: list[str]) -> int:
        """Run the lesson's command, then show what happened and the right answer.

        If there is no prediction yet, ask for it first. If the participant gives none, do not run
        the command.
        """
        self._refuse_arguments("run", arguments)
        lesson = self.progress.lesson
        if not self.progress.has_predicted(lesson):
            self.out.print("predict first, because that makes the answer stick (Enter: no idea)")
            self.do_predict([])
            if not self.progress.has_predicted(lesson):
                return NOT_DONE_EXIT_CODE
        render.show_instructions(self.out, lesson)
        started_at = time.time()
        self._run_command_of(lesson)
        if lesson.command.startswith("make faults"):
            render.show_story(self.out, started_at)
        elif lesson.command.startswith("make matrix"):
            self.out.print(render.TABLE_GLOSSARY, style="dim")
        self._show_right_answer(lesson, self.progress.get_record(lesson)["predicted"])
        self.progress.mark_answer_seen(lesson)
        self.out.print(f"Type explain to see why. Then the exercise: {self._displayed_path}")
        return 0

    def _run_command_of(self, lesson: Lesson) -> None:
        """Run the lesson's command until it ends, or until the participant ends it.

        Raises CommandError if the command fails, or if there is no terminal in which to end it.
        """
        self.out.print(f"$ {lesson.command}")
        if lesson.runs_until_ended:
            _require_terminal()
            self.out.print("Enter or Ctrl-C here ends it", style="dim")
            run_shell_command(lesson.command, self._handle_input_during_command)
            return
        self.out.print("this takes a moment; Ctrl-C ends it", style="dim")
        exit_code = run_shell_command(lesson.command)
        if exit_code not in RUN_EXIT_CODES:
            raise CommandError(
                f"the command failed with exit code {exit_code}; type run to repeat it"
            )

    def _show_right_answer(self, lesson: Lesson, predicted: str) -> None:
        """Show the right answer, and the belief behind a wrong prediction.

        predicted  the predicted letter; "" for no idea
        """
        right_answer = f"{lesson.answer}: {lesson.get_option_text(lesson.answer)}"
        if predicted == lesson.answer:
            self.out.print(f"You predicted it: {right_answer}.", style="green")
        elif predicted:
            self.out.print(f"You predicted {predicted}; it is {right_answer}.")
            belief = lesson.misconceptions[predicted]
            self.out.print(f"A common reason for {predicted}, which does not hold: {belief}")
        else:
            self.out.print(f"It is {right_answer}.")

    @property
    def _displayed_path(self) -> str:
        """The path of the participant's copy of the current exercise, as it is displayed."""
        return _relative_to_project(self.progress.get_own_copy(self.progress.lesson))

    def _handle_input_during_command(self) -> bool:
        """Handle a typed line or a saved exercise while a lesson's command runs.

        Return whether the lesson's command should be ended. A typed line is run as a command,
        except an empty line and COMMANDS_THAT_END_A_RUN, which end the lesson's command instead.
        """
        try:
            line = self.typed_lines.read_line(0)
        except Empty:
            self._handle_saves()
            return False
        if not line or line.lower().split()[0] in COMMANDS_THAT_END_A_RUN:
            return True
        self.run(line)
        return False

    def do_page(self, arguments: list[str]) -> None:
        """Serve the shop's page, on which the participant's file can be chosen as the lock `mine`.

        The page runs until the participant ends it.
        """
        self._refuse_arguments("page", arguments)
        _require_terminal()
        self.out.print(
            "on the page, your file is the lock mine; Enter or Ctrl-C here ends the page",
            style="dim",
        )
        run_shell_command(
            f"make serve ARGS='--mine {self._displayed_path}'", self._handle_input_during_command
        )

    def do_check(self, arguments: list[str]) -> int:
        """Check the participant's file of the current lesson, or of the lesson in the argument."""
        lesson = self._parse_lesson("check", arguments)
        file = self.progress.get_own_copy(lesson)
        self.save_watcher.ignore(file)  # if it was saved just before, it must not be checked twice
        result = self._checker.check(lesson, file)
        is_undecided_again = False
        if result.exit_code == UNDECIDED:
            is_undecided_again = self.progress.record_undecided(lesson, file.read_bytes())
        else:
            self.progress.record_check(lesson, result.refusal.code if result.refusal else None)
        render.show_result(
            self.out,
            lesson,
            result,
            _relative_to_project(file),
            is_undecided_again=is_undecided_again,
        )
        return result.exit_code

    def do_hint(self, arguments: list[str]) -> None:
        """Show the next hint for a lesson."""
        self.out.print(self.progress.take_next_hint(self._parse_lesson("hint", arguments)))

    def do_next(self, arguments: list[str]) -> None:
        """Go to the next lesson, whether or not the current exercise has passed."""
        self._refuse_arguments("next", arguments)
        number = self.progress.lesson.number + 1
        if number in lessons():
            self.do_goto([str(number)])
        else:
            self.out.print("this was the last lesson; list shows all of them")

    def do_goto(self, arguments: list[str]) -> None:
        """Go to the lesson with this number."""
        lesson = find_lesson(arguments[0]) if arguments else None
        if lesson is None:
            raise CommandError(f"goto takes the number of a lesson: {describe_lesson_numbers()}")
        self.progress.go_to(lesson.number)
        self.introduce_lesson()

    def do_list(self, arguments: list[str]) -> None:
        """Show all lessons and the participant's progress."""
        self._refuse_arguments("list", arguments)
        render.show_list(self.out, self.progress)

    def do_explain(self, arguments: list[str]) -> None:
        """Show the lesson's text; before the prediction only the part without the answer."""
        lesson = self._parse_lesson("explain", arguments)
        has_predicted = self.progress.has_predicted(lesson)
        render.show_text(self.out, lesson, with_answer=has_predicted)
        if has_predicted:
            self.progress.mark_answer_seen(lesson)

    def do_reset(self, arguments: list[str]) -> None:
        """Begin an exercise anew; with the argument `all`, begin all lessons anew.

        The old files are kept as backups.
        """
        if arguments == ["all"]:
            backup_folder = self.progress.reset_all()
            self.save_watcher = SaveWatcher(self.progress.folder)
            note = ""
            if backup_folder is not None:
                note = f"; the old files are in {_relative_to_project(backup_folder)}"
            self.out.print(f"all lessons begin anew{note}")
            return
        lesson = self._parse_lesson("reset", arguments)
        backup = self.progress.reset(lesson)
        self.save_watcher.ignore(self.progress.get_own_copy(lesson))
        note = f"; your file is kept as {_relative_to_project(backup)}" if backup else ""
        self.out.print(f"lesson {lesson.number} begins anew{note}")

    def do_solution(self, arguments: list[str]) -> None:
        """Show our solution, as a diff from the participant's file."""
        lesson = self._parse_lesson("solution", arguments)
        if not self.progress.may_see_solution(lesson):
            raise CommandError(
                "solution works once your file has passed, or after three refusals; type hint"
            )
        file = self.progress.get_own_copy(lesson)
        their_code = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        our_code = lesson.make_solved_exercise()
        if _strip_blank_lines(their_code) == _strip_blank_lines(our_code):
            self.out.print("your file is the same as our solution")
            return
        diff = unified_diff(
            their_code.splitlines(), our_code.splitlines(), "yours", "ours", lineterm="", n=2
        )
        self.out.print("\n".join(diff))

    def do_help(self, arguments: list[str]) -> None:
        """List all commands; with a topic (redis, lua, sell_one), show its section of SHEET.md."""
        if not arguments:
            for command, explanation in render.HELP.items():
                self._print_labelled(f"  {command:10} ", explanation)
            return
        topic = arguments[0].lower()
        _, *sections = (HERE / "SHEET.md").read_text(encoding="utf-8").split("\n## ")
        for section in sections:
            heading, _, _ = section.partition("\n")
            if topic in heading.lower():
                self.out.print(Markdown(f"## {section}"))
                return
        raise CommandError("help takes redis, lua, sell_one or no argument")

    def introduce_lesson(self) -> None:
        """Show the current lesson: its question, its file, and the commands to type."""
        lesson = self.progress.lesson
        own_copy = self.progress.get_own_copy(lesson)  # makes the copy if there is none yet
        self.save_watcher.ignore(own_copy)
        predicted = self.progress.get_record(lesson)["predicted"]
        render.show_question(self.out, lesson, predicted)
        todo = "Type a letter, then run." if predicted is None else "Type run to see the answer."
        how_to_check = "saving checks it" if self.in_a_session else "type check to check it"
        self.out.print(
            f"\n{todo} Then type explain, and do the exercise:\n"
            f"{self._displayed_path} ({how_to_check})."
        )
        self.out.print("Type hint for a hint, quiz for eight questions, help for all commands.")


def _require_terminal() -> None:
    """Raise CommandError unless stdin is a terminal, in which Ctrl-C can end a command."""
    if not sys.stdin.isatty():
        raise CommandError("this command runs until Ctrl-C: start it in a terminal")


def _strip_blank_lines(code: str) -> list[str]:
    """Return the lines of the code that are not blank, without trailing spaces."""
    return [line.rstrip() for line in code.splitlines() if line.strip()]


def _relative_to_project(path: Path) -> str:
    """Return the path relative to the project's folder."""
    return os.path.relpath(path, ROOT)
