"""Ends a check if one of its steps takes too long, and finds the participant's line that hangs.

A step is a part of a check between two calls of restart_step_timer().
"""

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
#: How long the threads of a check that hangs are observed.
OBSERVATION_SECONDS = 0.5
#: A thread that uses more processor time than this within OBSERVATION_SECONDS is in an endless
#: loop.
SPINNING_SECONDS = 0.01
#: Number of observations of the threads within OBSERVATION_SECONDS.
OBSERVATION_COUNT = 25
#: Modules in which a thread waits for another thread of its process.
WAITING_MODULES = ("threading.py", "queue.py")
#: Modules in which a buyer waits while the check pauses it. Such a buyer does not hang.
PAUSED_MODULES = ("interleaving.py", "actor.py")

#: The monotonic time at which the current step takes too long.
_step_deadline = 0.0


def restart_step_timer() -> None:
    """Restart the time limit, because the next step of the check begins.

    If the time limit were not restarted, a check whose steps are slow on a busy machine would seem
    to have an endless loop in the participant's file.
    """
    global _step_deadline
    _step_deadline = time.monotonic() + STEP_TIMEOUT_SECONDS


def watch_for_slow_steps(file: Path, report: Callable[[Refusal | Undecided], None]) -> None:
    """Start a thread that calls `report` if a step of the check takes too long.

    file    the participant's file; its line that hangs is looked for in the threads that run it
    report  gets the refusal, or Undecided, and must end the process
    """

    def watch_steps() -> None:
        while (seconds_left := _step_deadline - time.monotonic()) > 0:
            time.sleep(seconds_left)
        report(_explain_hang(str(file)))

    restart_step_timer()
    threading.Thread(target=watch_steps, name="watch", daemon=True).start()


def _explain_hang(file: str) -> Refusal | Undecided:
    """Return a refusal with the reason why the participant's file hangs.

    The reason is an endless loop, a sleep, or a wait. If several threads run the file, examine the
    thread that uses the most processor time. If no thread runs the file, return Undecided.
    """
    line_by_thread = {thread: place.line for thread, place in _observe_threads(file).items()}
    if not line_by_thread:
        return Undecided(
            f"a step of the check took more than {STEP_TIMEOUT_SECONDS:g} s on this machine"
        )
    processor_time_before = {thread: _read_processor_time(thread) for thread in line_by_thread}
    observations: list[dict[int, ThreadPlace]] = []
    deadline = time.monotonic() + OBSERVATION_SECONDS
    while time.monotonic() < deadline:
        observations.append(_observe_threads(file))
        time.sleep(OBSERVATION_SECONDS / OBSERVATION_COUNT)
    used_processor_time = {
        thread: _read_processor_time(thread) - processor_time_before[thread]
        for thread in line_by_thread
    }
    busiest_thread = max(line_by_thread, key=lambda thread: used_processor_time[thread])
    places = [
        place_by_thread[busiest_thread]
        for place_by_thread in observations
        if busiest_thread in place_by_thread
    ]
    sleeping_lines = [place.line for place in places if place.sleeps]
    line = sleeping_lines[0] if sleeping_lines else line_by_thread[busiest_thread]
    where = f"line {line}: {linecache.getline(file, line).strip()}"
    if len(sleeping_lines) > len(places) / 2:
        return Refusal("sleeps", {"where": where})
    if used_processor_time[busiest_thread] > SPINNING_SECONDS:
        return Refusal("endless", {"where": where})
    if all(place.waits_for_thread for place in places):  # each buyer of a check is a thread
        return Refusal("waits-for-buyer", {"where": where})
    return Refusal("waits-for-answer", {"where": where})


class ThreadPlace(NamedTuple):
    """The line at which a thread is at one moment, and what it does there.

    line              the innermost line of the participant's file
    sleeps            whether that line sleeps
    waits_for_thread  whether that line waits for another thread of this process
    """

    line: int
    sleeps: bool
    waits_for_thread: bool


def _observe_threads(file: str) -> dict[int, ThreadPlace]:
    """Return the current line and activity of each thread that runs this file, by its id.

    Threads of buyers that the check has paused are left out.
    """
    places = {}
    for thread, innermost_frame in sys._current_frames().items():
        called_modules: list[str] = []  # the modules that the participant's line has called
        for frame, line in walk_stack(innermost_frame):  # from the innermost outwards
            module = frame.f_code.co_filename
            if module.endswith(PAUSED_MODULES):
                break
            if module == file:
                # Functions written in C, such as time.sleep() and lock.acquire(), do not appear
                # in called_modules.
                sleeps = not called_modules and "sleep" in linecache.getline(file, line)
                # This is also true if the line calls no module, as in an endless loop. The caller
                # detects such a loop before it uses this value.
                waits_for_thread = all(name.endswith(WAITING_MODULES) for name in called_modules)
                places[thread] = ThreadPlace(line, sleeps, waits_for_thread)
                break
            called_modules.append(module)
    return places


def _read_processor_time(thread: int) -> float:
    """Return the processor time of a thread in seconds.

    If the system does not report it, return the processor time of the whole process.
    """
    if hasattr(time, "pthread_getcpuclockid"):
        with suppress(OSError):  # the thread has ended meanwhile
            return time.clock_gettime(time.pthread_getcpuclockid(thread))
    times = os.times()
    return times.user + times.system
