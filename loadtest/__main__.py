"""python -m loadtest: show the oversell, then the locks that stop it."""

import os
import signal
import sys
from types import FrameType


def end_silently(signal_number: int, frame: FrameType | None) -> None:
    os._exit(130)


if __name__ == "__main__":
    # In the second that the imports take, Ctrl-C has nothing to stop, and says nothing.
    signal.signal(signal.SIGINT, end_silently)
    from loadtest.commands.main import main

    sys.exit(main(sys.argv[1:], __doc__))
