"""The messages between Locust's master and its workers in a rush, as msgpack takes them.

Without workers the same messages stay in the process: Locust's local runner calls the listeners.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from loadtest.judge.intervals import Request
from loadtest.target.errors import TargetError, file_of
from loadtest.target.target import Target

if TYPE_CHECKING:
    from locust.env import Environment

logger = logging.getLogger("loadtest")

#: To the workers: a rush is announced; it begins at a moment; it is over.
RUSH, GO, END = "rush", "rush_go", "rush_end"
#: To the master: the announcement was heard; all buyers are at the barrier; all that they asked;
#: the target is wrong.
HERE, ARRIVED, REPORT, BROKEN = "rush_here", "rush_arrived", "rush_report", "rush_broken"

_values = attrgetter(*(field.name for field in fields(Request)))
PLAIN = (str, int, float, bool, type(None))


def listen(environment: Environment, kind: str, hear: Callable[[str, Any], None]) -> None:
    """Call `hear` with the sender's id and the data of every message of this type."""

    def listener(environment: Environment, msg: Any, **_: Any) -> None:
        hear(msg.node_id, msg.data)

    environment.runner.register_message(kind, listener)  # type: ignore[union-attr]


def packed(request: Request) -> list[Any]:
    return [one if isinstance(one, PLAIN) else str(one) for one in _values(request)]


def unpacked(values: Sequence[Any], ahead: float) -> Request:
    """The request by our clock; `ahead`: seconds that the sender's clock is ahead of it."""
    found = Request(*values)
    found.sent -= round(ahead * 1e9)
    if found.answered is not None:
        found.answered -= round(ahead * 1e9)
    return found


def state(target: Target, before: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that opening a sale has set or changed in a target: the buyers in other
    processes need them. Raises TargetError for one that cannot be sent."""
    changed = {
        name: value
        for name, value in vars(target).items()
        if name not in before
        or before[name] is not value
        or (isinstance(value, list | dict) and _is_plain(value))  # may have been filled in place
    }
    for name, value in changed.items():
        if not _is_plain(value):
            raise TargetError(
                f"{file_of(target)}: open() sets self.{name} to {value!r:.60}, which cannot be "
                "sent to Locust's workers: make it in __init__(), or keep numbers, words and lists"
            )
    return changed


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(one) for name, one in value.items())
    return isinstance(value, PLAIN)
