"""`crash`: every process of the holder's node is killed."""

from functools import partial

from loadtest.faults import measure
from loadtest.faults.node_end import NodeEndFault
from loadtest.faults.testbed import wait_for
from loadtest.faults.trial import Trial

#: The point where a contender has read an expired time, and has not taken the lock over yet.
TAKEOVER = "setnx-timestamp:before_takeover"


class CrashFault(NodeEndFault):
    """SIGKILL of every process of node A. If gunicorn's master were the only one killed, the worker
    would finish its request and release its lock."""

    name = "crash"
    title = "SIGKILL of the holder's node"
    recovery = True

    def enter(self, trial: Trial) -> None:
        super().enter(trial)
        stop = ""
        if trial.strategy["takes_over"]:
            stop = f"{TAKEOVER},after_read"
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
