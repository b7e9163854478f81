"""pause: the holder's whole machine is stopped for longer than its ttl."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

import psutil

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import TTL, VICTIMS, Testbed, until
from loadtest.faults.trial import Trial

#: Seconds. Longer than the ttl and than ZooKeeper's session, which ends on a tick of half a second;
#: shorter than PostgreSQL's timeout for an idle transaction and gunicorn's for a worker.
PAUSE = TTL + 1.0


class Pause(Fault):
    """SIGSTOP of node A, SIGCONT after the ttl. Meanwhile nothing in it can renew or notice."""

    name = "pause"
    title = "SIGSTOP of the holder's node past the ttl"
    grace = PAUSE
    takes_the_lock = True

    def __init__(self) -> None:
        super().__init__()
        self.pids: list[int] = []
        self.since = self.lasted = 0.0

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.may_resume.clear()
        self.pids = testbed.signal(VICTIMS, signal.SIGSTOP)
        self.since = time.monotonic()

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        self.require(until(self._is_stopped, 2), "a process of node A still runs")
        return f"the {len(self.pids)} processes of node A are in state T"

    def _is_stopped(self) -> bool:
        return {psutil.Process(p).status() for p in self.pids} == {psutil.STATUS_STOPPED}

    def meanwhile(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        time.sleep(PAUSE)
        self.lasted = time.monotonic() - self.since
        if not self._is_stopped() or self.lasted < TTL + 0.5:
            for trial in trials:
                trial.missing = f"node A was stopped for {self.lasted:.1f} s only"
        self._continue(testbed)

    def observed(self, trials: Sequence[Trial]) -> str:
        return f"they were stopped for {self.lasted:.2f} s, with a ttl of {TTL:g} s"

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self._continue(testbed)

    def _continue(self, testbed: Testbed) -> None:
        if self.pids:
            testbed.signal(VICTIMS, signal.SIGCONT)
            testbed.record_fault(self.name, "ok", "heal", "SIGCONT of node A")
        self.pids = []
        self.may_resume.set()


class PauseAcquired(Pause):
    """The same between acquiring the lock and claiming the fence: only there the fence itself is
    tested. After the claim the row lock of the victim's transaction keeps rivals out."""

    name = "pause@acquired"
    title = "the same before the fence is claimed"
    stop = "acquired"
