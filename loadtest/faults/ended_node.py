"""crash, shutdown: the holder's node ends, by SIGKILL or by SIGTERM."""

import time
from functools import partial

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import TTL, VICTIMS, wait_for
from loadtest.faults.trial import Trial
from loadtest.stack.client import Shop

#: The point where a contender has read an expired time, and has not taken the lock over yet.
TAKEOVER = "setnx-timestamp:before_takeover"
#: Seconds for the node to end after it has answered everybody.
ENDS = 10.0


class EndedNode(Fault):
    """Node A ends. It is started again when the buyers have acted."""

    def require_nothing_left(self, seconds: float = ENDS) -> None:
        """Raise NotFired if a process of the node does not end in time: measured by the pids that
        it has now, a worker that was spared among them."""
        left = "a process of node A is left"
        self.require_soon(lambda: not self.testbed.pids(self.node), left, seconds)

    def heal(self) -> None:
        self.testbed.restart(self.node)


class Crash(EndedNode):
    """SIGKILL of every process of node A. If gunicorn's master were the only one killed, the worker
    would finish its request and release its lock."""

    name = "crash"
    title = "SIGKILL of the holder's node"
    asks_again = False
    recovery = True
    ran = 0

    def enter(self, trial: Trial) -> None:
        super().enter(trial)
        trial.start_rivals(stop=f"{TAKEOVER},after_read" if trial.strategy["takes_over"] else "")

    def fire(self) -> None:
        self.ran = len(self.testbed.pids(self.node))
        self.testbed.nodes[self.node].kill()

    def prove(self) -> str:
        """Measured also by the pids that the victims recorded, not by those that were killed."""
        self.require_nothing_left(3.0)
        for trial in self.trials:
            pid = trial.victim_pid
            if pid is None or measure.state_of(pid) not in measure.ENDED:
                trial.miss("the process that the victim was in still runs")
            trial.victim_was_cut_off()
        return f"the {self.ran} processes of node A are gone, its victims' connections were cut"

    def observed(self) -> str:
        return f"of the victims' locks, those that end had {self.measured_ttl()}"

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

    def fire(self) -> None:
        self.process = self.testbed.process_of(self.node)
        self.testbed.nodes[self.node].terminate()

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


class ShutdownShort(Shutdown):
    """The same with a graceful timeout shorter than the purchases: it ends like a crash."""

    name = "shutdown@short"
    title = "SIGTERM, and too little time"
    ttl = TTL
    asks_again = False
    recovery = True

    def arm(self) -> None:
        self.testbed.restart(self.node, WEB_GRACEFUL_TIMEOUT="1")

    def enter(self, trial: Trial) -> None:
        trial.victim_enters(asks_again=False)
        trial.start_rivals(1)  # two would show what `crash` shows

    def prove(self) -> str:
        self.require_soon(lambda: self.process.poll() is not None, "node A still runs")
        self.require_nothing_left()
        ended = time.monotonic()
        for trial in self.trials:
            trial.fired_at = ended  # a lock may outlive the node by its ttl at most
            trial.victim_was_cut_off()
        return f"node A ended with code {self.process.returncode}, its victims unanswered"

    def act(self, trial: Trial) -> None:
        """The rivals buy in the drain."""

    def meanwhile(self) -> None:
        """The node has ended."""
