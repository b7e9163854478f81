"""Signals that end a command: the first one stops it, later ones do not disturb the stopping."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

#: The signals that end a command: from a terminal, a supervisor, or a terminal that closes.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_is_ending = False


def end_on(*numbers: signal.Signals) -> None:
    """Let the first of these signals end this process by an exception. Later ones are ignored.

    SIGINT raises KeyboardInterrupt, any other SystemExit with the usual exit code. An ignored
    SIGHUP stays ignored, for nohup. An ignored SIGINT is handled: a shell's `&` ignores it, and
    Ctrl-C could not end the command.
    """
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def end_on_hangup_and_sigterm() -> None:
    """Let SIGTERM and SIGHUP end this process by an exception, unless they are handled already.

    So `atexit` runs.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            end_on(number)


@contextmanager
def uninterrupted(on_signal: Callable[[], None] | None = None) -> Iterator[None]:
    """Run the block uninterrupted by ending signals. The first one takes effect afterwards.

    on_signal  called for each such signal, for instance to print what is being waited for

    It does nothing outside the main thread, where no signal arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        if on_signal is not None:
            on_signal()

    with ExitStack() as restored:
        for ending_signal in ENDING_SIGNALS:
            handler = signal.getsignal(ending_signal)
            if handler not in (signal.SIG_IGN, None):
                signal.signal(ending_signal, note)
                restored.callback(signal.signal, ending_signal, handler)
        yield
    for number in noted[:1]:
        signal.raise_signal(number)


def _end(number: int, frame: FrameType | None) -> None:
    global _is_ending
    if _is_ending:
        return
    _is_ending = True
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
