"""Signals that end a command: the first one stops it, later ones do not disturb the stopping."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

#: What a terminal, its end, a supervisor and a user send to end a command.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_is_ending = False


def end_on(*numbers: signal.Signals) -> None:
    """From now on the first of these ends this process by an exception; later ones are only noted.

    SIGINT raises KeyboardInterrupt, the others SystemExit with the usual exit code. An ignored
    SIGHUP stays ignored, for nohup. An ignored SIGINT does not: a shell's `&` sets it, and Ctrl-C
    could not end the command.
    """
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def end_on_hangup_and_sigterm() -> None:
    """The same for SIGTERM and SIGHUP where nobody handles them: `atexit` runs then."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            end_on(number)


@contextmanager
def uninterrupted(when_asked_again: Callable[[], None] = lambda: None) -> Iterator[None]:
    """In this block no signal of ENDING interrupts: the first one takes effect behind it.

    when_asked_again  called for each such signal, for instance to say what is being waited for

    Outside the main thread, where no signal arrives, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        when_asked_again()

    with ExitStack() as restored:
        for one in ENDING:
            if (before := signal.getsignal(one)) not in (signal.SIG_IGN, None):
                signal.signal(one, note)
                restored.callback(signal.signal, one, before)
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
