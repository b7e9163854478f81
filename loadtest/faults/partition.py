"""partition: the holder's node is cut off from Redis, and lives."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Testbed, until
from loadtest.faults.trial import Trial, measured_ttl


class Partition(Fault):
    """A black hole between node A and Redis: no byte passes, no connection is closed. The holder
    still reaches the database, so it goes on; its renewals and its release do not arrive."""

    name = "partition"
    title = "a black hole between the holder's node and Redis"
    takes_the_lock = True

    def __init__(self) -> None:
        super().__init__()
        self.before: int | None = None
        self.dropped = 0

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        testbed.redis[self.node].black_hole()

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        answers = [testbed.answers(testbed.redis[node]) for node in (self.node, 1 - self.node)]
        self.require(not answers[0], "Redis answers through node A's proxy")
        self.require(answers[1], "Redis does not answer node B either")
        self.before = testbed.redis[self.node].dropped  # less the PING of this proof
        return "Redis answers a PING by the way of node B, and none by that of node A"

    def meet(self, trial: Trial) -> None:
        """Node A sells nothing without the lock; node B sells when the lock has expired."""
        cut_off = trial.send(trial.buyer("cut-off"), self.node)
        trial.rival_enters("rival-1", grace=self.grace)
        until(lambda: bool(cut_off.first), 10)
        if cut_off.first not in trial.without_reply:
            trial.wrong.append(f"a buyer of node A was answered {cut_off.first} without Redis")

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        if self.before is not None:
            self.dropped = testbed.redis[self.node].dropped - self.before
            for trial in trials if not self.dropped else ():
                trial.miss("node A sent nothing into the black hole")
        testbed.redis[self.node].pass_on()

    def observed(self, trials: Sequence[Trial]) -> str:
        return f"{self.dropped} bytes of node A never arrived; the locks had {measured_ttl(trials)}"
