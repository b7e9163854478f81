"""The workshop: python -m workshop [command]; without a command, an interactive session."""

import argparse
import os
import re
import sys

from loadtest.stack.stack import ROOT, StackError
from servers.embedded import EmbeddedError
from servers.signals import ENDING_SIGNALS, end_on, uninterrupted
from workshop import render
from workshop.checker import Checker
from workshop.commands import NOT_DONE_EXIT_CODE, Commands
from workshop.progress import DamagedProgress, Progress

#: The log of the servers on which the checks run.
LOG = ROOT / "var" / "workshop.log"
#: Quiz answers in which the first question has the answer `-`, for no idea. argparse takes such a
#: word for an option.
QUIZ_ANSWERS_STARTING_WITH_DASH = re.compile("-[a-d-]{7}", re.IGNORECASE)


def main() -> int:
    """Run the command of the command line, or a session if there is none. Return the exit code.

    0    the file passed the check, or another command was done
    1    the check refused the file, or the results of `observe` contradict the answer of a lesson
    2    the check was undecided, or the command was unknown or could not be run
    130  Ctrl-C ended the command or the session
    """
    words = _read_command_line()
    end_on(*ENDING_SIGNALS)
    console = render.make_console()
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("wb") as log:
        checker = Checker(console, log)
        try:
            commands = Commands(console, Progress(), checker)
            if words:
                return commands.run_words(words)
            commands.run_session()
            return 0
        except KeyboardInterrupt:
            return 130
        except DamagedProgress as error:
            console.print(str(error))
            return NOT_DONE_EXIT_CODE
        except (StackError, EmbeddedError, OSError) as error:
            console.print(f"{error}\nSee {os.path.relpath(LOG, ROOT)}, or run make doctor.")
            return NOT_DONE_EXIT_CODE
        finally:
            with uninterrupted():
                checker.close()


def _read_command_line() -> list[str]:
    """Return the command and its arguments; an empty list begins an interactive session.

    The command `report` expects its options last, so they come last in the list. An unknown option
    ends the process.
    """
    parser = argparse.ArgumentParser(prog="python -m workshop", description=__doc__)
    parser.add_argument("command", nargs="*", help="; ".join(render.HELP))
    parser.add_argument(
        "--json", action="store_true", help="with `report`: print JSON, for the facilitator"
    )
    parser.add_argument(
        "--merge",
        nargs="+",
        default=[],
        metavar="FILE",
        help="with `report`: add up the JSON reports of all participants",
    )
    arguments, unknown_options = parser.parse_known_args()
    words = " ".join(arguments.command).split()  # "goto 3" may be one argument
    unknown_text = " ".join(unknown_options)
    if words == ["quiz"] and QUIZ_ANSWERS_STARTING_WITH_DASH.fullmatch(unknown_text):
        words.append(unknown_text)
    elif unknown_text:
        parser.error(f"unrecognized arguments: {unknown_text}")
    if arguments.json:
        words.append("--json")
    if arguments.merge:
        words += ["--merge", *arguments.merge]  # a path may contain spaces
    return words


if __name__ == "__main__":
    sys.exit(main())
