"""How the buyers of a rush are gathered, released, and their answers collected.

In one process (Local, here), or in Locust's workers (Workers, in master.py and worker.py).
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from loadtest.rush.crowd import Crowd, Report, Share
from loadtest.rush.open_files import allow
from loadtest.target.target import Target


class Gathered(Report, Protocol):
    """What a gathering has to know of a rush."""

    id: str
    target: Target
    buyers: int
    deadline_s: float

    def released(self, at: float) -> None:
        """Everybody is released at this moment of the monotonic clock."""


class Gathering(Protocol):
    """The buyers of one rush after the other, wherever they are."""

    def announce(self, rush: Any, *, before: dict[str, Any]) -> None:
        """The next buyers that arrive are those of this rush, and so are those that stayed.

        rush    a Rush; its module imports this one
        before  the attributes of its target before the sale was opened

        Raises TargetError where the target cannot be sent there, TooFewFiles.
        """

    def release(self) -> None:
        """Release the buyers of the rush who have arrived."""

    def close(self) -> None:
        """End the rush: report what was asked and not answered."""

    def stopping(self) -> None:
        """The run is stopped in the middle of a rush: check whether a lost worker is the reason."""

    def has_all(self) -> bool:
        """Whether all processes of the last rush are connected, except those that were lost."""
        ...

    def refusal(self) -> str:
        """Why the buyers that stayed cannot be in another rush; empty if they can."""
        ...

    def figures(self) -> dict[str, Any]:
        """What summary.json has of the processes with buyers; empty for one."""
        ...


class Local:
    """All buyers are in this process."""

    crowd: Crowd | None = None
    _rush: Gathered

    def announce(self, rush: Gathered, *, before: dict[str, Any]) -> None:
        allow(
            rush.buyers,
            what=f"Locust with {rush.buyers} buyers",
            otherwise="take more processes (--processes 4)",
        )
        stayed, self._rush = self.crowd, rush
        self.crowd = Crowd(
            rush.id,
            target=rush.target,
            share=Share(rush.buyers),
            deadline_s=rush.deadline_s,
            report=rush,
        )
        if stayed is not None:
            stayed.replaced.set()

    def release(self) -> None:
        if self.crowd is not None:
            self._rush.released(time.monotonic())
            self.crowd.release()

    def close(self) -> None:
        if self.crowd is not None:
            self.crowd.close()

    def stopping(self) -> None:
        """There is none."""

    def has_all(self) -> bool:
        return True

    def refusal(self) -> str:
        return ""

    def figures(self) -> dict[str, Any]:
        return {}
