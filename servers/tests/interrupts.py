"""Lets a test interrupt the processes that it starts, as Ctrl-C would."""

import signal


def stop_ignoring_sigint() -> None:
    """Let SIGINT end this process again. Used as `preexec_fn` of a new process.

    A shell makes its background commands ignore SIGINT, and their child processes inherit this.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
