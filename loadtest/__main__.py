"""python -m loadtest: show the oversell, then the locks that stop it."""

import os
import signal
import sys
from types import FrameType


def end_silently(signal_number: int, frame: FrameType | None) -> None:
    """End this process on Ctrl-C at once, without a traceback."""
    os._exit(130)  # the usual exit code of a command that SIGINT has ended


if __name__ == "__main__":
    # The imports take a second. A Ctrl-C in that time has nothing to stop, and ends silently.
    signal.signal(signal.SIGINT, end_silently)
    from loadtest.commands.main import main

    sys.exit(main(sys.argv[1:], __doc__))
