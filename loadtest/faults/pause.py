"""pause: node A, all processes of the holder's node, is stopped for longer than its lock's ttl.

Its neuters, SIGSTOP that reaches one process or lasts a moment, say: loadtest/tests/neuters.py.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import TTL, until
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
    may_be_stopped = False
    lasted = 0.0

    def fire(self) -> None:
        self.watched: dict[int, int] = {}
        self.may_resume.clear()
        self.may_be_stopped = True
        self.testbed.signal(self.node, signal.SIGSTOP)
        self.since = time.monotonic()

    def prove(self) -> str:
        """Measured by the pids that the node has now and those that the victims recorded, not by
        the pids that were signalled."""
        stopped = until(lambda: self._is_stopped(self.trials), 2)
        self.require(stopped, "a process of node A still runs")
        self.watched = measure.switches_of(self.testbed.pids(self.node))
        return f"the {len(self.watched)} processes of node A are in state T"

    def _is_stopped(self, trials: Sequence[Trial]) -> bool:
        victims = {trial.victim_pid for trial in trials if not trial.missing}
        pids = {*self.testbed.pids(self.node), *victims}
        if None in pids:
            return False
        states = measure.states_of(pid for pid in pids if pid is not None)
        return set(states.values()) == {psutil.STATUS_STOPPED}

    def meanwhile(self) -> None:
        time.sleep(PAUSE)
        self.lasted = time.monotonic() - self.since
        stopped = self.lasts() and self._is_stopped(self.trials)
        for trial in self.trials:
            ttl = TTL if trial.lock_ttl is None else trial.lock_ttl
            if not stopped or self.lasted < ttl:
                lasted = f"{self.lasted:.1f} s" if stopped else "not all the time"
                trial.miss(f"node A was stopped for {lasted}, and the lock lives for {ttl:.1f} s")
        self.heal()

    def lasts(self) -> bool:
        """A process that went on for a moment was given a processor: the kernel counts that."""
        return self._is_stopped([]) and measure.switches_of(self.watched) == self.watched

    def observed(self) -> str:
        return f"they were stopped for {self.lasted:.2f} s, with {self.measured_ttl()}"

    def heal(self) -> None:
        if self.may_be_stopped:
            self.testbed.signal(self.node, signal.SIGCONT)
            self.testbed.record_fault(self.name, "ok", "heal", "SIGCONT of node A")
        self.may_be_stopped = False
        self.may_resume.set()


class PauseAcquired(Pause):
    """The same between acquiring the lock and claiming the fence: only there the fence itself is
    tested. After the claim the row lock of the victim's transaction keeps rivals out.

    A fence that did its work is seen in the victim's answer: `lost`. The locks without one show
    that the pause was long enough to break a lock."""

    name = "pause@acquired"
    title = "the same before the fence is claimed"
    stop = "acquired"

    def resume(self, trial: Trial) -> None:
        super().resume(trial)
        if trial.expected == "exact" and (first := trial.first_answer(10)) != "lost":
            trial.miss(f"the fence did nothing: the victim was answered {first}, not lost")
