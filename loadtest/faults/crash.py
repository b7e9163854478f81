"""crash: the holder's machine fails in an instant."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Testbed, until
from loadtest.faults.trial import Trial, measured_ttl

#: The point where a contender has read an expired time, and has not taken the lock over yet.
TAKEOVER = "setnx-timestamp:before_takeover"


class Crash(Fault):
    """SIGKILL of every process of node A. If gunicorn's master alone were killed, the worker would
    finish its request and release its lock."""

    name = "crash"
    title = "SIGKILL of the holder's node"
    asks_again = False
    recovery = True

    def __init__(self) -> None:
        super().__init__()
        self.ran = 0

    def enter(self, trial: Trial) -> None:
        trial.victim_enters()
        trial.start_rivals(stop=f"{TAKEOVER},after_read" if trial.strategy["takes_over"] else "")

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.ran = len(testbed.pids(self.node))
        testbed.nodes[self.node].kill()

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        """Measured by the pids that the node has now (a worker that was spared is among them) and
        those that the victims recorded, not by the pids that were killed."""
        self.require_soon(lambda: not testbed.pids(self.node), "a process of node A is left", 3.0)
        for trial in trials:
            pid = trial.victim_pid
            if pid is None or set(measure.states_of([pid]).values()) - measure.ENDED:
                trial.miss("the process that the victim was in still runs")
            trial.victim_was_cut_off()
        return f"the {self.ran} processes of node A are gone, its victims' connections were cut"

    def observed(self, trials: Sequence[Trial]) -> str:
        return f"the victims' locks had {measured_ttl(trials)}"

    def act(self, trial: Trial) -> None:
        """Let the rivals buy. Where a rival takes an expired lock over, let two do so at once."""
        if not trial.strategy["takes_over"]:
            until(lambda: any(rival.sold_at for rival in trial.rivals), self.grace)
            return
        both = until(
            lambda: all(trial.is_stopped_at(r, TAKEOVER) for r in trial.rivals), self.grace
        )
        self.require(both, f"{trial.lock}: the rivals do not find the lock expired")
        for rival in trial.rivals:
            trial.testbed.resume(rival.attempt, TAKEOVER)
            until(partial(trial.is_stopped_at, rival, "after_read"), 0.3)
        trial.resume_rivals()

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        testbed.restart(self.node)
