"""What a fault is: armed, fired, proven, healed; and how buyers meet in it.

    arm    before anybody buys: start what it needs
    enter  victims come in on node A and stand at their point
    fire   make it happen
    prove  say by what it is seen that it did; NotFired if it did not
    meet   rivals come on node B while the victims stand
    part   the victims go on, then the rivals
    heal   everything as it was

Victim and rivals meet in the order that shows a broken lock for certain: where the lock lets a
rival in beside the victim, both have read the same stock; the victim writes, then the rival.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loadtest.faults.testbed import TTL, Stage, until

if TYPE_CHECKING:
    from loadtest.faults.trial import Scene


class NotFired(RuntimeError):
    """The fault did not happen, so nothing was shown. The message says what was missing."""


class Fault(ABC):
    """One fault. Fired once for all the strategies that it concerns.

    name      as the registry has it; with an @, another form of the fault before it
    title     what is done, for a table
    stop      the point at which its victims stand, unless the strategy has one of its own
    grace     seconds that a rival is given to get in beside the victim
    ttl       seconds that a lock survives a silent holder; more than TTL where the fault itself has
              to take the lock away, lest it ends by itself
    takes_the_lock  whether even a sound lock is taken away, so that two may be inside and the fence
              decides
    returns   whether a victim whose answer is lost asks again with its key
    recovery  whether the time from firing to the next sale is of interest
    """

    name: str
    title: str
    stop = "after_read"
    grace = TTL + 0.7
    ttl = TTL
    takes_the_lock = False
    returns = True
    recovery = False

    def __init__(self) -> None:
        #: Set when rivals have met the victims for long enough, and these may go on.
        self.over = threading.Event()
        self.over.set()

    def arm(self, stage: Stage, scenes: Sequence[Scene]) -> None:  # noqa: B027 most need nothing
        """Get ready. The sales are open, nobody buys yet."""

    def enter(self, scene: Scene) -> None:
        """Have the victim stand at its point."""
        scene.victim_enters()

    @abstractmethod
    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        """Make it happen. Every victim stands at its point."""

    @abstractmethod
    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        """By what it is seen that it happened. Raises NotFired."""

    def act(self, scene: Scene) -> None:
        """What buyers do while it lasts."""
        self.meet(scene)
        self.over.wait(30)
        self.part(scene)

    def meet(self, scene: Scene) -> None:
        scene.rival_enters("rival-1", grace=self.grace)

    def part(self, scene: Scene) -> None:
        scene.victim_leaves()
        scene.rivals_leave()

    def meanwhile(self, stage: Stage, scenes: Sequence[Scene]) -> None:  # noqa: B027
        """What is done to the servers while the buyers act."""

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:  # noqa: B027
        """Put everything back. Called whether it fired or not."""

    def leave(self, stage: Stage) -> None:  # noqa: B027
        """What has to stay until the sales are over. Called whether it fired or not."""

    def seen(self, scenes: Sequence[Scene]) -> str:
        """What was counted or measured while the buyers acted, for the report."""
        return ""

    def require(self, true: object, what: str) -> None:
        """Raise NotFired unless it is true."""
        if not true:
            raise NotFired(f"{self.name}: {what}")

    def require_soon(self, true: object, what: str, seconds: float = 10.0) -> None:
        """Raise NotFired unless it comes true."""
        assert callable(true)
        if not until(true, seconds):
            raise NotFired(f"{self.name}: {what}")
