"""slow, late-release, pause, clock: the holder is late for its ttl, or its contender is early."""

import os
import signal
import threading
import time
from collections.abc import Sequence

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, TTL
from loadtest.faults.trial import Trial

#: Seconds. Longer than the ttl and than ZooKeeper's session, which ends on a tick of half a second;
#: shorter than PostgreSQL's timeout for an idle transaction and gunicorn's for a worker.
PAUSE = TTL + 1.0
#: Seconds by which node B is ahead, and how exact the Date of an answer is.
AHEAD = 60.0
EXACT = 3.0

#: A sitecustomize.py: every Python with its folder in PYTHONPATH starts with a wrong clock.
WRONG_CLOCK = f"""\
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {AHEAD!r}
time.time_ns = lambda: _time_ns() + {int(AHEAD * 1e9)!r}
"""


class Slow(Fault):
    """The victim is stopped after its read, in a process that runs, until its ttl is long over."""

    name = "slow"
    title = "the holder works for longer than the ttl"

    def prove(self) -> str:
        states = map(measure.state_of, self.testbed.pids(self.node))
        self.require(psutil.STATUS_STOPPED not in states, "the node is stopped, not slow")
        return f"the victims are stopped at {self.stop}, node A runs"

    def observed(self) -> str:
        return f"the victims were stopped for {self.stopped_for()}, with {self.measured_ttl()}"

    def resume(self, trial: Trial) -> None:
        trial.outlast_ttl()
        super().resume(trial)


class LateRelease(Fault):
    """The victim is stopped between its COMMIT and its release until the ttl is over. A first rival
    gets the lock; the victim's late release must not let a second one in beside it."""

    name = "late-release"
    title = "the release comes after the ttl"
    stop = "after_commit"

    def prove(self) -> str:
        shop = self.testbed.shop()
        for trial in self.trials:
            if trial.victim.attempt not in {order["key"] for order in shop.orders(trial.sale)}:
                trial.miss("the victim has not committed")
        return "every victim's order is committed, and its lock not released"

    def observed(self) -> str:
        return f"the releases came after {self.stopped_for()}, with {self.measured_ttl()}"

    def act(self, trial: Trial) -> None:
        trial.rival_enters("rival-1", grace=self.grace)
        trial.outlast_ttl()
        trial.resume_victim(seconds=0.3)  # the first rival's own ttl runs
        trial.rival_enters("rival-2", grace=0.3)
        trial.resume_rivals()


class Pause(Fault):
    """SIGSTOP of node A, SIGCONT after the ttl. Meanwhile nothing in it can renew or notice.

    Its neuters, SIGSTOP that reaches one process or lasts a moment, say: loadtest/tests/neuters.py.
    """

    name = "pause"
    title = "SIGSTOP of the holder's node past the ttl"
    grace = PAUSE
    takes_the_lock = True

    def fire(self) -> None:
        self.may_resume = threading.Event()  # set when the victims may go on
        record = self.testbed.record_fault
        self.healing.callback(record, self.name, "ok", "heal", "SIGCONT of node A")
        self.healing.callback(self.testbed.signal, self.node, signal.SIGCONT)
        self.testbed.signal(self.node, signal.SIGSTOP)
        self.since = time.monotonic()

    def prove(self) -> str:
        """Measured by the pids that the node has now and those that the victims recorded, not by
        the pids that were signalled."""
        runs = "a process of node A still runs"
        self.require_soon(lambda: self._is_stopped(self.trials), runs, 2.0)
        self.watched = measure.switches_of(self.testbed.pids(self.node))
        return f"the {len(self.watched)} processes of node A are in state T"

    def _is_stopped(self, trials: Sequence[Trial]) -> bool:
        victims = {trial.victim_pid for trial in trials if not trial.missing}
        states = set(map(measure.state_of, {*self.testbed.pids(self.node), *victims}))
        return states == {psutil.STATUS_STOPPED}

    def act(self, trial: Trial) -> None:
        self.meet(trial)
        self.may_resume.wait(30)
        self.resume(trial)

    def meanwhile(self) -> None:
        try:
            time.sleep(PAUSE)
            self.lasted = time.monotonic() - self.since
            stopped = self.lasts() and self._is_stopped(self.trials)
            lasted = f"{self.lasted:.1f} s" if stopped else "not all the time"
            for trial in self.trials:
                if not stopped or self.lasted < trial.lives_for:
                    lives = f"the lock lives for {trial.lives_for:.1f} s"
                    trial.miss(f"node A was stopped for {lasted}, and {lives}")
            self.heal()
        finally:
            self.may_resume.set()

    def lasts(self) -> bool:
        """A process that went on for a moment was given a processor: the kernel counts that."""
        return self._is_stopped([]) and measure.switches_of(self.watched) == self.watched

    def observed(self) -> str:
        return f"they were stopped for {self.lasted:.2f} s, with {self.measured_ttl()}"


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


class Clock(Fault):
    """Node B's clock is a minute ahead of node A's: in all of its code, not only in the locks that
    are known to read it. A holder that is ahead would only hold its lock for longer."""

    name = "clock"
    title = f"the contender's clock is {AHEAD:g} s ahead"
    grace = TTL * 0.6  # a lock stolen later than this expired by itself

    def arm(self) -> None:
        folder = self.testbed.folder / "wrong-clock"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(WRONG_CLOCK)
        known = self.testbed.nodes[RIVALS].environment.get("PYTHONPATH", "")
        path = os.pathsep.join(filter(None, (str(folder), known)))
        self.healing.callback(self.testbed.restart, RIVALS)
        self.testbed.restart(RIVALS, PYTHONPATH=path)

    def prove(self) -> str:
        for node, wanted in zip(self.testbed.nodes, (0.0, AHEAD), strict=True):
            ahead = measure.clock_ahead(node.url)
            self.require(abs(ahead - wanted) < EXACT, f"node {node.name} is {ahead:.0f} s ahead")
        return f"the Date of node B's answers is {AHEAD:g} s ahead, that of node A's is not"
