"""One worker of Locust in a rush, as the master sees it."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from loadtest.rush import measure
from loadtest.rush.clock import Clock
from loadtest.rush.crowd import Done, Share
from loadtest.rush.measure import Interval

#: A worker is lost when its connection was gone so many times in a row. ZeroMQ restores a broken
#: one within a tenth of a second.
MISSES = 3
#: Seconds by which a worker's times may be wrong beside the error of its clock: clocks drift.
CLOCK_SLACK = 0.05


@dataclass
class Member:
    """One worker of a rush.

    id         Locust's name of it: the machine's name, and a random part
    share      its buyers
    clock      its clock, compared with the master's
    shares     whether it is known to have the same clock as the master
    arrived    how many of its buyers are at the barrier
    answers    how often it has sent its clock
    misses     how many times in a row it could not be reached
    lost       whether it is gone for good
    collected  whether it has reported the requests that were never answered
    """

    id: str
    share: Share
    clock: Clock = field(default_factory=Clock)
    shares: bool = False
    arrived: int = 0
    answers: int = 0
    misses: int = 0
    lost: bool = False
    collected: bool = False
    intervals: list[Interval] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"worker {self.share.first} on {self.id.rpartition('_')[0] or self.id}"

    @property
    def ahead(self) -> float:
        """Seconds by which its clock is ahead of ours. Where both have the same one, an estimate
        would only add its error."""
        return 0.0 if self.shares else self.clock.offset

    def hear(self, message: dict[str, Any], *, received: float, machine: str) -> None:
        """An answer to `clock`."""
        self.answers += 1
        self.shares = message["machine"] == machine
        self.clock.compare(message["sent"], message["there"], received)

    def doubt(self, done: Done, *, released_at: float, now: float) -> str:
        """Why the times in a report cannot be true, or empty: nobody asks before the release, and
        nobody is answered after the report has come. All in seconds of our clock."""
        asked = [one.sent / 1e9 for one in done.requests]
        answered = [one.answered / 1e9 for one in done.requests if one.answered is not None]
        wrong = max(
            max((released_at - time for time in asked), default=0.0),
            max((time - now for time in answered), default=0.0),
        )
        if wrong <= self.clock.error + CLOCK_SLACK:
            return ""
        when = "before the release" if min(asked) < released_at else "in the future"
        return (
            f"{self.name} says that a buyer asked or was answered {wrong:.2f} s {when}: is the "
            "clock of its machine set, or in a container of its own?"
        )

    def unanswered(self, key: Any, answered: Container[str]) -> list[str]:
        """The keys of its buyers who arrived and are not among those that were answered."""
        arrived = list(self.share.numbers)[: self.arrived]
        return [one for one in map(key, arrived) if one not in answered]

    def figures(self, released_at: float) -> dict[str, Any]:
        """Its part of a run in summary.json, in milliseconds."""
        sent = [interval.sent for interval in self.intervals]
        return {
            "worker": self.share.first,
            "on": self.id.rpartition("_")[0] or self.id,
            "buyers": len(self.share.numbers),
            "arrival_spread_ms": measure.spread_ms(self.intervals),
            "first_ms": _ms(min(sent) - released_at) if sent else None,
            "last_ms": _ms(max(sent) - released_at) if sent else None,
            "clock_ahead_ms": _ms(self.clock.offset),
            "clock_error_ms": _ms(self.clock.error),
            "same_clock": self.shares,
        }


def _ms(seconds: float) -> float | None:
    return round(seconds * 1000, 3) if math.isfinite(seconds) else None
