"""What Locust's master and its workers send each other of a rush, as msgpack takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from loadtest.judge.intervals import Request
from loadtest.judge.verdict import Reply
from loadtest.rush.crowd import Done
from loadtest.rush.measure import Interval
from loadtest.target.errors import TargetError, file_of
from loadtest.target.target import Target

#: Types of messages. To the workers: a rush is announced, begins, and is over; what is your clock?
ANNOUNCE, GO, END, CLOCK = "rush", "rush_go", "rush_end", "rush_clock"
#: To the master: buyers arrived; are done; what the others asked; the target is wrong.
ARRIVED, DONE, REST, BROKEN = "rush_arrived", "rush_done", "rush_rest", "rush_broken"

_of_request = attrgetter(*(field.name for field in fields(Request)))
PLAIN = (str, int, float, bool, type(None))


def packed_request(request: Request) -> list[Any]:
    values = list(_of_request(request))
    return [value if isinstance(value, PLAIN) else str(value) for value in values]


def request(values: Sequence[Any], ahead: float) -> Request:
    """The request, by our clock; `ahead`: seconds that the sender's is ahead of it."""
    found = Request(*values)
    shift = round(ahead * 1e9)
    found.sent -= shift
    if found.answered is not None:
        found.answered -= shift
    return found


def packed_done(done: Done) -> list[Any]:
    order = done.reply.order
    reply = [done.reply.key, done.reply.outcome, order if isinstance(order, PLAIN) else str(order)]
    times = [done.interval.sent, done.interval.answered, done.interval.done]
    return [[packed_request(one) for one in done.requests], reply, times]


def done(values: Sequence[Any], ahead: float) -> Done:
    requests, reply, times = values
    return Done(
        [request(one, ahead) for one in requests],
        Reply(*reply),
        Interval(*(time - ahead for time in times)),
    )


def state(target: Target, before: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that opening a sale has set or changed in a target: the buyers in other
    processes need them. Raises TargetError for one that cannot be sent."""
    changed = {
        name: value
        for name, value in vars(target).items()
        if name not in before
        or before[name] is not value
        or (isinstance(value, list | dict) and _plain(value))  # it may have been filled in place
    }
    for name, value in changed.items():
        if not _plain(value):
            raise TargetError(
                f"{file_of(target)}: open() sets self.{name} to {value!r:.60}, which cannot be "
                "sent to Locust's workers: make it in __init__(), or keep numbers, words and lists"
            )
    return changed


def _plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_plain(one) for one in value)
    if isinstance(value, dict):
        return all(isinstance(name, str) and _plain(one) for name, one in value.items())
    return isinstance(value, PLAIN)
