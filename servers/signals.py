"""Signals that end a command. The first one stops it; later ones do not interrupt its clean-up."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

#: The signals that end a command: Ctrl-C, from a supervisor, and from a terminal that closes.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: Whether a signal has begun to end this process. Later signals are then ignored.
_is_ending = False


def end_on(*numbers: signal.Signals) -> None:
    """Make the first of these signals raise an exception that ends the process; ignore later ones.

    SIGINT raises KeyboardInterrupt. Any other signal raises SystemExit with the usual exit code. A
    SIGHUP that is ignored stays ignored, because nohup relies on this. A SIGINT that is ignored is
    handled, because a command that a shell starts with `&` ignores SIGINT.
    """
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _raise_at_first_signal)


def end_on_hangup_and_sigterm() -> None:
    """Let SIGTERM and SIGHUP end this process by an exception, so that `atexit` runs.

    A signal that is ignored or has a handler stays as it is.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            end_on(number)


def accept_next_signal() -> None:
    """Let the next signal end this process, although an earlier signal has begun to end it.

    Call this after the exception that the earlier signal raised was caught.
    """
    global _is_ending
    _is_ending = False


@contextmanager
def uninterrupted(on_signal: Callable[[], None] | None = None) -> Iterator[None]:
    """Postpone the signals that end a command until the block ends.

    on_signal  called for each such signal, for example to print why the command still runs

    At the end of the block, only the first of the signals takes effect. If the block raises an
    exception, none does. Outside the main thread this function has no effect, because signals
    arrive in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    postponed_signals: list[int] = []

    def postpone(number: int, frame: FrameType | None) -> None:
        postponed_signals.append(number)
        if on_signal is not None:
            on_signal()

    with ExitStack() as handlers:
        for ending_signal in ENDING_SIGNALS:
            handler = signal.getsignal(ending_signal)
            # The handler is None if it was not set by Python. Python could not restore it.
            if handler not in (signal.SIG_IGN, None):
                signal.signal(ending_signal, postpone)
                handlers.callback(signal.signal, ending_signal, handler)
        yield
    for number in postponed_signals[:1]:
        signal.raise_signal(number)


def _raise_at_first_signal(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt or SystemExit at the first signal, and ignore all later signals."""
    global _is_ending
    if _is_ending:
        return
    _is_ending = True
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
