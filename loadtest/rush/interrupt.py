"""Ends plain Locust on Ctrl-C before its run begins, with the exit code of `unknown`.

Locust takes a KeyboardInterrupt for the end of a run only once it waits for that run. One that
comes while it starts its processes or waits for its workers would be a traceback.
"""

import os
import signal
import sys
from typing import Any

from loadtest.judge.verdict import EXIT_CODES


def install(**_: Any) -> None:
    """Handle SIGINT from now until `restore`, unless it is ignored or handled otherwise."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    first_pid = os.getpid()

    def end(*_: object) -> None:
        if os.getpid() != first_pid:  # a worker of --processes: the verdict is the master's
            sys.exit(0)
        print("UNKNOWN: interrupted before there was a rush", file=sys.stderr)
        sys.exit(EXIT_CODES["unknown"])

    signal.signal(signal.SIGINT, end)


def restore(**_: Any) -> None:
    """Leave SIGINT to Locust, which waits for its run now."""
    handler = signal.getsignal(signal.SIGINT)
    if getattr(handler, "__module__", "") == __name__:
        signal.signal(signal.SIGINT, signal.default_int_handler)
