"""The messages between Locust's master and its workers in a rush, as msgpack takes them.

Without workers the same messages stay in the process: Locust's local runner calls the listeners.
The announcement of a rush is no message: Locust sends its options to each worker with its users.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from loadtest.judge.intervals import Request
from loadtest.target.errors import TargetError, file_of
from loadtest.target.target import Target

logger = logging.getLogger("loadtest")

#: To the workers: the master's clock; the rush begins at a moment; it is over.
CLOCK, GO, END = "rush_clock", "rush_go", "rush_end"
#: To the master: a process has buyers; all of them are at the barrier; all that they asked; the
#: target is wrong.
HERE, ARRIVED, REPORT, BROKEN = "rush_here", "rush_arrived", "rush_report", "rush_broken"

_values = attrgetter(*(field.name for field in fields(Request)))
PLAIN = (str, int, float, bool, type(None))


def packed(request: Request, ahead: float = 0.0) -> list[Any]:
    """A request by a clock that ours is `ahead` seconds of. `Request(*packed)` makes it again."""
    values: list[Any] = [one if isinstance(one, PLAIN) else str(one) for one in _values(request)]
    if ahead:
        values[1:3] = [None if t is None else t - round(ahead * 1e9) for t in values[1:3]]
    return values


def state(target: Target, before: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a target that can be sent: buyers in other processes need what open() set.

    before  the attributes that it had before open()

    Raises TargetError for one that open() has set and that cannot be sent.
    """
    for name, value in vars(target).items():
        if not _is_plain(value) and (name not in before or before[name] is not value):
            raise TargetError(
                f"{file_of(target)}: open() sets self.{name} to {value!r:.60}, which cannot be "
                "sent to Locust's workers: make it in __init__(), or keep numbers, words and lists"
            )
    return {name: value for name, value in vars(target).items() if _is_plain(value)}


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(one) for name, one in value.items())
    return isinstance(value, PLAIN)
