"""Interrupts of the processes that a test starts."""

import signal


def stop_ignoring_sigint() -> None:
    """Restore the default action of SIGINT, as `preexec_fn` of a process.

    A shell starts a command in the background with SIGINT ignored, and its processes inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
