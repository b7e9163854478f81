"""A Ctrl-C handler that ends plain Locust before its run begins, with the exit code of `unknown`.

Locust itself handles a KeyboardInterrupt only once the run has begun. Before that, while it starts
its processes or waits for its workers, Ctrl-C would print a traceback.
"""

import os
import signal
import sys
from typing import Any

import gevent

from loadtest.judge.verdict import EXIT_CODES


def install(**_: Any) -> None:
    """End Locust on SIGINT, with the exit code of the verdict `unknown`, until restore() is called.

    Do nothing if the process ignores SIGINT or already has a handler that is not Python's default.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    installing_pid = os.getpid()
    main_greenlet = gevent.getcurrent()

    def end_locust(*_: object) -> None:
        if os.getpid() != installing_pid:  # a worker of --processes; only the master has a verdict
            exit_code = 0
        else:
            print("UNKNOWN: interrupted before there was a rush", file=sys.stderr, flush=True)
            exit_code = EXIT_CODES["unknown"]
        # A signal handler may run inside a finalizer. SystemExit raised there would be printed and
        # ignored, and Locust would wait for its workers forever.
        gevent.kill(main_greenlet, SystemExit(exit_code))

    signal.signal(signal.SIGINT, end_locust)


def restore(**_: Any) -> None:
    """Restore Python's handler of SIGINT: from now on Locust handles a KeyboardInterrupt itself."""
    handler = signal.getsignal(signal.SIGINT)
    if getattr(handler, "__module__", "") == __name__:  # the handler that install() has set
        signal.signal(signal.SIGINT, signal.default_int_handler)
