"""Gives up a check whose step takes too long, and finds the line that is the cause."""

import linecache
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from traceback import walk_stack
from typing import NamedTuple

from workshop.refusal import Refusal, Undecided

#: How long one step of a check may take.
STEP_TIMEOUT_SECONDS = 12.0
#: Seconds for which the threads are observed; and the processor time in them above which a thread
#: is in an endless loop.
OBSERVATION_SECONDS, SPINNING_SECONDS = 0.5, 0.01
#: The number of observations in that time.
OBSERVATION_COUNT = 25
#: Modules in which a thread waits for another thread of its process.
WAITING_MODULES = ("threading.py", "queue.py")
#: Modules in which a buyer waits that a check has stopped: it is not the cause.
STOPPED_MODULES = ("interleaving.py", "actor.py")

_deadline = [0.0]


def restart_step_timer() -> None:
    """Give the next step its full time, or a slow machine would look like an endless loop."""
    _deadline[0] = time.monotonic() + STEP_TIMEOUT_SECONDS


def give_up_slow_steps(file: Path, report: Callable[[Refusal | Undecided], None]) -> None:
    """Call `report` with the cause, in another thread, once a step takes too long."""

    def wait() -> None:
        while (left := _deadline[0] - time.monotonic()) > 0:
            time.sleep(left)
        report(_find_cause(str(file)))

    restart_step_timer()
    threading.Thread(target=wait, name="watch", daemon=True).start()


def _find_cause(file: str) -> Refusal | Undecided:
    """Return why the threads that run this file do not go on: a loop, a sleep, or a wait."""
    lines = _lines_of(file)
    if not lines:
        return Undecided(f"a step of the check took more than {STEP_TIMEOUT_SECONDS:g} s here")
    before = {thread: _processor_time(thread) for thread in lines}
    looks: list[dict[int, Look]] = []
    until = time.monotonic() + OBSERVATION_SECONDS
    while time.monotonic() < until:
        looks.append(_observe_threads(file))
        time.sleep(OBSERVATION_SECONDS / OBSERVATION_COUNT)
    spent = {thread: _processor_time(thread) - before[thread] for thread in lines}
    thread = max(lines, key=lambda thread: spent[thread])
    looks_at_thread = [look[thread] for look in looks if thread in look]
    sleeping = [look.line for look in looks_at_thread if look.sleeps]
    line = sleeping[0] if sleeping else lines[thread]
    where = f"line {line}: {linecache.getline(file, line).strip()}"
    if len(sleeping) > len(looks_at_thread) / 2:
        return Refusal("sleeps", {"where": where})
    if spent[thread] > SPINNING_SECONDS:
        return Refusal("endless", {"where": where})
    is_in_threading = all(look.in_threading for look in looks_at_thread)
    return Refusal("waits-here" if is_in_threading else "stands-still", {"where": where})


class Look(NamedTuple):
    """The place of a thread at one moment.

    line          the innermost line of the participant's file
    sleeps        whether that line sleeps
    in_threading  whether it waits for another thread of this process
    """

    line: int
    sleeps: bool
    in_threading: bool


def _observe_threads(file: str) -> dict[int, Look]:
    """Return the present place of each thread that runs this file."""
    looks = {}
    for thread, top in sys._current_frames().items():
        between: list[str] = []
        for frame, line in walk_stack(top):  # innermost first
            name = frame.f_code.co_filename
            if name.endswith(STOPPED_MODULES):  # the check has stopped this buyer
                break
            if name == file:
                sleeps = not between and "sleep" in linecache.getline(file, line)
                in_threading = all(module.endswith(WAITING_MODULES) for module in between)
                looks[thread] = Look(line, sleeps, in_threading)
                break
            between.append(name)
    return looks


def _lines_of(file: str) -> dict[int, int]:
    """Return the innermost line of this file in each thread that runs it."""
    return {thread: look.line for thread, look in _observe_threads(file).items()}


def _processor_time(thread: int) -> float:
    """Return the processor time of a thread in seconds, or of the process if that is unknown."""
    if hasattr(time, "pthread_getcpuclockid"):
        with suppress(OSError):  # it has ended meanwhile
            return time.clock_gettime(time.pthread_getcpuclockid(thread))
    times = os.times()
    return times.user + times.system
