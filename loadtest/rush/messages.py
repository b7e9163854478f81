"""The messages between Locust's master and its workers in a rush, as msgpack takes them.

Without workers the same messages stay in the process: Locust's local runner calls the listeners.
The announcement of a rush is no message: Locust sends its options to each worker with its users.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any

import msgpack

from loadtest.judge.intervals import Request, values
from loadtest.target.target import Target, TargetError, file_of

logger = logging.getLogger("loadtest")

#: To the workers: the rush begins at a moment; it is over.
GO, END = "rush_go", "rush_end"
#: To the master: a process has buyers; all of them are at the barrier; all that they asked; the
#: target is wrong.
HERE, ARRIVED, REPORT, BROKEN = "rush_here", "rush_arrived", "rush_report", "rush_broken"
KINDS = (GO, END, HERE, ARRIVED, REPORT, BROKEN)

#: Seconds below which two clocks are the same: asking for two times takes some microseconds.
SAME_CLOCK = 0.001


def clock() -> float:
    """Seconds from the monotonic clock to the time of day: the same in all processes of a machine,
    so that it shows whether another one is elsewhere. Of some tries the quickest: between two
    readings another process may have had the processor."""
    tries = [(time.monotonic(), time.time(), time.monotonic()) for _ in range(5)]
    began, now, _ = min(tries, key=lambda one: one[2] - one[0])
    return now - began


def ahead_of(other: float) -> float:
    """Seconds by which the monotonic clock of this machine is ahead of that of another one, whose
    `clock` this is; right as far as their times of day agree."""
    ahead = other - clock()
    return ahead if abs(ahead) > SAME_CLOCK else 0.0


def packed(request: Request, ahead: float = 0.0) -> list[Any]:
    """A request by a clock that ours is `ahead` seconds of. `Request(*packed)` makes it again."""
    found = list(values(request))
    if ahead:
        found[1:3] = [None if t is None else t - round(ahead * 1e9) for t in found[1:3]]
    return found


def state(target: Target, before: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a target that can be sent: buyers in other processes need what open() set.

    before  the attributes that it had before open()

    Raises TargetError for one that open() has set and that cannot be sent.
    """
    found = {}
    for name, value in vars(target).items():
        try:
            found[name] = msgpack.loads(msgpack.dumps(value))
        except (TypeError, ValueError, OverflowError) as error:
            if name not in before or before[name] is not value:
                raise TargetError(
                    f"{file_of(target)}: open() sets self.{name} to {value!r:.60}, which cannot be "
                    "sent to Locust's workers: make it in __init__(), or keep numbers, words and "
                    "lists"
                ) from error
    return found
