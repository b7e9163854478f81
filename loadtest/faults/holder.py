"""crash, shutdown, slow, late-release, pause, clock: the holder's node ends, the holder is late for
its ttl, or its contender is early."""

import os
import signal
import threading
import time
from collections.abc import Collection
from functools import partial

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, TTL, VICTIMS, wait_for
from loadtest.faults.trial import Trial
from loadtest.stack.client import Shop

#: The point where a contender has read an expired time, and has not taken the lock over yet.
TAKEOVER = "setnx-timestamp:before_takeover"
#: Seconds for the node to end after it has answered everybody.
ENDS = 10.0
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


class EndedNode(Fault):
    """SIGTERM for node A. It is started again when the buyers have acted."""

    def fire(self) -> None:
        self.healing.callback(self.testbed.restart, self.node)
        self.process = self.testbed.process_of(self.node)
        self.testbed.nodes[self.node].terminate()

    def require_nothing_left(self, seconds: float = ENDS) -> None:
        """Raise NotFired if a process of the node does not end in time: measured by the pids that
        it has now, a worker that was spared among them."""
        left = "a process of node A is left"
        self.require_soon(lambda: not self.testbed.pids(self.node), left, seconds)


class Crash(EndedNode):
    """SIGKILL of every process of node A. If gunicorn's master were the only one killed, the worker
    would finish its request and release its lock."""

    name = "crash"
    title = "SIGKILL of the holder's node"
    recovery = True

    def enter(self, trial: Trial) -> None:
        super().enter(trial)
        stop = f"{TAKEOVER},after_read" if trial.strategy["takes_over"] else ""
        for name in ("rival-1", "rival-2"):  # they wait for the lock when the fault happens
            trial.rival_enters(name, grace=0, stop=stop)

    def fire(self) -> None:
        self.healing.callback(self.testbed.restart, self.node)
        self.ran = len(self.testbed.pids(self.node))
        self.testbed.nodes[self.node].kill()

    def prove(self) -> str:
        """Measured also by the pids that the victims recorded, not by those that were killed."""
        self.require_nothing_left(3.0)
        for trial in self.trials:
            pid = trial.victim_pid
            if not pid or measure.state_of(pid) not in measure.ENDED:
                trial.miss("the process that the victim was in still runs")
            trial.victim_must_be("unknown", 5)
        return f"the {self.ran} processes of node A are gone, its victims' connections were cut"

    def act(self, trial: Trial) -> None:
        """Let the rivals buy. Where a rival takes an expired lock over, let two do so at once."""
        rivals, is_stopped_at = trial.rivals, self.testbed.is_stopped_at
        if not trial.strategy["takes_over"]:
            wait_for(lambda: any(rival.sold_at for rival in rivals), self.grace)
            return
        nobody = f"{trial.lock}: the rivals do not find the lock expired"
        self.require_soon(
            lambda: all(is_stopped_at(r, TAKEOVER) for r in rivals), nobody, self.grace
        )
        for rival in rivals:
            self.testbed.resume(rival, TAKEOVER)
            wait_for(partial(is_stopped_at, rival, "after_read"), 0.3)
        trial.resume_rivals()


class Shutdown(EndedNode):
    """SIGTERM with a graceful timeout longer than the purchases: node A answers everybody."""

    name = "shutdown"
    title = "SIGTERM, and time enough to finish"
    grace = 0.3
    ttl = 5.0  # only the answers matter here, not how long a lock stays

    def enter(self, trial: Trial) -> None:
        super().enter(trial)
        guest = trial.guest = trial.buyer("guest", stop="arrives")  # waits behind the victim
        self.testbed.resume(guest)
        trial.send(guest, VICTIMS)
        nobody = f"{trial.lock}: the guest did not arrive"
        self.require_soon(lambda: self.testbed.is_stopped_at(guest), nobody)

    def prove(self) -> str:
        shop = Shop(self.testbed.nodes[self.node].url, timeout=0.2)
        self.require_soon(lambda: not shop.is_open(), "node A still accepts new buyers")
        self.require(self.process.poll() is None, "node A has ended already")
        for trial in self.trials:
            if trial.victim.first or not self.testbed.is_stopped_at(trial.victim):
                trial.miss("SIGTERM came when its victim was not at its point any more")
        return "node A accepts no new buyers, has not ended, and its victims are at their points"

    def resume(self, trial: Trial) -> None:
        super().resume(trial)
        if (first := trial.first_answer(10)) != "sold":
            trial.wrong.append(f"the victim was answered {first}, not sold")
        if not trial.guest.answered.wait(10) or trial.guest.first == "unknown":
            trial.wrong.append("the guest behind the victim got no answer")

    def meanwhile(self) -> None:
        wait_for(lambda: self.process.poll() is not None, ENDS + self.grace)
        self.require(self.process.poll() == 0, f"node A ended with {self.process.poll()}, not 0")
        self.require_nothing_left()


class ShutdownShort(EndedNode):
    """The same with a graceful timeout shorter than the purchases: it ends like a crash."""

    name = "shutdown@short"
    title = "SIGTERM, and too little time"
    recovery = True

    def arm(self) -> None:
        self.testbed.restart(self.node, WEB_GRACEFUL_TIMEOUT="1")

    def enter(self, trial: Trial) -> None:
        super().enter(trial)
        trial.rival_enters("rival-1", grace=0, stop="")  # two would show what `crash` shows

    def prove(self) -> str:
        self.require_soon(lambda: self.process.poll() is not None, "node A still runs")
        self.require_nothing_left()
        self.fired_at = time.monotonic()  # a lock may outlive the node by its ttl at most
        for trial in self.trials:
            trial.victim_must_be("unknown", 5)
        return f"node A ended with code {self.process.returncode}, its victims unanswered"

    def act(self, trial: Trial) -> None:
        """The rivals buy in the drain."""


class Slow(Fault):
    """The victim waits after its read, in a process that runs, until its ttl is long over."""

    name = "slow"
    title = "the holder works for longer than the ttl"

    def prove(self) -> str:
        states = map(measure.state_of, self.testbed.pids(self.node))
        self.require(psutil.STATUS_STOPPED not in states, "the node is stopped, not slow")
        return f"the victims are stopped at {self.stop}, node A runs"

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
        victims = {trial.victim_pid for trial in self.trials if not trial.missing}
        pids = {*self.testbed.pids(self.node), *victims}
        runs = "a process of node A still runs"
        self.require_soon(lambda: self._are_stopped(pids), runs, 2.0)
        self.watched = measure.switches_of(pids)
        return f"the {len(pids)} processes of node A are in state T"

    def _are_stopped(self, pids: Collection[int]) -> bool:
        return set(map(measure.state_of, pids)) == {psutil.STATUS_STOPPED}

    def act(self, trial: Trial) -> None:
        self.meet(trial)
        self.may_resume.wait(30)
        self.resume(trial)

    def meanwhile(self) -> None:
        try:
            time.sleep(PAUSE)
            lasted, lasts = time.monotonic() - self.since, self.lasts()
            for trial in self.trials:
                trial.was_stopped(lasted)
                if not lasts:  # also where its lock had ended before
                    trial.miss("node A was not stopped all the time")
            self.heal()
        finally:
            self.may_resume.set()

    def lasts(self) -> bool:
        """A process that went on for a moment was given a processor: the kernel counts that."""
        return self._are_stopped(self.watched) and measure.switches_of(self.watched) == self.watched


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
        if trial.expected == "exact":
            trial.victim_must_be("lost")


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
