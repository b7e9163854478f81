"""Gives up a check whose step takes too long, and says where the participant's code was."""

import linecache
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from traceback import walk_stack

from workshop.refusal import Refusal, Undecided

#: Seconds until a step that does not come to its end is given up.
LONGEST = 12.0
#: Seconds for which a thread is looked at, and of processor time in them above which it spins.
LOOK, SPINS = 0.5, 0.01
#: A buyer whom a check has stopped stands in one of these, and is not what keeps it.
STOPPED_IN = ("interleaving.py", "actor.py")

_deadline = [0.0]


def alive() -> None:
    """A new step begins: a slow machine that gets on is no endless loop."""
    _deadline[0] = time.monotonic() + LONGEST


def watch(file: Path, ended: Callable[[Refusal | Undecided], None]) -> None:
    """From now on a step that takes too long calls `ended` with the reason, in another thread."""

    def wait() -> None:
        while (left := _deadline[0] - time.monotonic()) > 0:
            time.sleep(left)
        ended(found_in(str(file)))

    alive()
    threading.Thread(target=wait, name="watch", daemon=True).start()


def found_in(file: str) -> Refusal | Undecided:
    """Where threads are that run this file: do they spin, or wait?"""
    inside = {}
    for thread, top in sys._current_frames().items():
        for frame, line in walk_stack(top):  # innermost first
            name = frame.f_code.co_filename
            if name.endswith(STOPPED_IN):  # further in than the file's own line
                break
            if name == file:
                inside[thread] = line
                break
    if not inside:
        return Undecided(f"a step of the check took more than {LONGEST:g} s here")
    before = {thread: _processor_time(thread) for thread in inside}
    time.sleep(LOOK)
    spent = {thread: _processor_time(thread) - before[thread] for thread in inside}
    thread = max(inside, key=lambda thread: spent[thread])
    where = f"line {inside[thread]}: {linecache.getline(file, inside[thread]).strip()}"
    return Refusal("endless" if spent[thread] > SPINS else "waits-here", {"where": where})


def _processor_time(thread: int) -> float:
    """Seconds of processor time of this thread; where a system cannot tell, of the process."""
    if hasattr(time, "pthread_getcpuclockid"):
        with suppress(OSError):  # it has ended meanwhile
            return time.clock_gettime(time.pthread_getcpuclockid(thread))
    times = os.times()
    return times.user + times.system
