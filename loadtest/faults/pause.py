"""pause: the holder's whole machine stands still for longer than its ttl."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

import psutil

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import TTL, VICTIMS, Stage, until
from loadtest.faults.trial import Scene

#: Seconds. Longer than the ttl and than ZooKeeper's session, which ends on a tick of half a second;
#: shorter than PostgreSQL's patience with an idle transaction and gunicorn's with a worker.
PAUSE = TTL + 1.0


class Pause(Fault):
    """SIGSTOP of node A, SIGCONT after the ttl. Nothing in it renews, nothing in it notices."""

    name = "pause"
    title = "SIGSTOP of the holder's node past the ttl"
    grace = PAUSE
    takes_the_lock = True

    def __init__(self) -> None:
        super().__init__()
        self.pids: list[int] = []
        self.since = self.lasted = 0.0

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.over.clear()
        self.pids = stage.signal(VICTIMS, signal.SIGSTOP)
        self.since = time.monotonic()

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        self.require(until(self._stands_still, 2), "a process of node A runs on")
        return f"all processes of node A are in state T (pids {self.pids})"

    def _stands_still(self) -> bool:
        return {psutil.Process(p).status() for p in self.pids} == {psutil.STATUS_STOPPED}

    def meanwhile(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        time.sleep(PAUSE)
        self.lasted = time.monotonic() - self.since
        if not self._stands_still() or self.lasted < TTL + 0.5:
            for scene in scenes:
                scene.missing = f"node A stood still for {self.lasted:.1f} s, or not to the end"
        self._go_on(stage)

    def seen(self, scenes: Sequence[Scene]) -> str:
        return f"they stood still for {self.lasted:.2f} s, with a ttl of {TTL:g} s"

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self._go_on(stage)

    def _go_on(self, stage: Stage) -> None:
        if self.pids:
            stage.signal(VICTIMS, signal.SIGCONT)
            stage.tell(self.name, "ok", "heal", f"SIGCONT of pids {self.pids}")
        self.pids = []
        self.over.set()


class PauseAcquired(Pause):
    """The same between acquiring and claiming: only there does the fence itself show. Once it is
    claimed, the row lock of the victim's transaction keeps rivals out."""

    name = "pause@acquired"
    title = "the same before the fence is claimed"
    stop = "acquired"
