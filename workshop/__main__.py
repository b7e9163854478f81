"""The workshop: python -m workshop [word]; without a word, a session."""

import argparse
import os
import sys

from loadtest.stack.stack import ROOT, StackError
from servers.embedded import EmbeddedError
from servers.signals import ENDING_SIGNALS, end_on, uninterrupted
from workshop import render
from workshop.checker import Checking
from workshop.commands import Commands
from workshop.progress import DamagedProgress, Progress
from workshop.refusal import UNDECIDED

LOG = ROOT / "var" / "workshop.log"


def main() -> int:
    """0 passed or done, 1 refused, 2 undecided or not understood."""
    parser = argparse.ArgumentParser(prog="python -m workshop", description=__doc__)
    parser.add_argument("word", nargs="*", help="; ".join(render.HELP))
    parser.add_argument("--json", action="store_true", help="report: as JSON, to be collected")
    parser.add_argument("--merge", nargs="+", default=[], help="report: those of a room, added up")
    arguments = parser.parse_args()
    options = ["--json"] if arguments.json else []
    if arguments.merge:
        options.append("--merge")
        options += arguments.merge
    line = " ".join(arguments.word + options)
    end_on(*ENDING_SIGNALS)
    out = render.console()
    try:
        progress = Progress()
    except DamagedProgress as error:
        out.print(str(error))
        return UNDECIDED
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("wb") as log:
        checking = Checking(out, log)
        commands = Commands(out, progress, checking)
        try:
            if line:
                return commands.run(line)
            commands.session()
            return 0
        except KeyboardInterrupt:
            return 130
        except (StackError, EmbeddedError, OSError) as error:
            out.print(f"{error}\nSee {os.path.relpath(LOG, ROOT)}, or run make doctor.")
            return UNDECIDED
        finally:
            with uninterrupted():
                checking.close()


if __name__ == "__main__":
    sys.exit(main())
