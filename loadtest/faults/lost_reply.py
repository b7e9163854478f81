"""lost-reply: Redis carries a command out, and its reply is lost."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS, Testbed
from loadtest.faults.trial import Trial
from servers.proxy.proxy import LostReply


class LostReplies(Fault):
    """The proxy drops the reply to the victim's first command that names its product: the one that
    takes the lock. The victim asks again with the same key."""

    name = "lost-reply"
    title = "the reply that says that the lock is ours is cut off"

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.rules: dict[str, LostReply] = {}
        for trial in trials:
            proxy = (
                testbed.redlock[0]
                if trial.strategy["backend"] == "redlock"
                else testbed.redis[VICTIMS]
            )
            # A reservation does not name the product, but its arguments name the attempt.
            names = f"{trial.attempts}/victim" if trial.strategy["reserves"] else trial.product
            self.rules[trial.lock] = proxy.lose_reply(names.encode())

    def enter(self, trial: Trial) -> None:
        trial.victim = trial.send(trial.buyer("victim"), VICTIMS)

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """The victims' requests fire it."""

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        for trial in trials:
            self.require(self.rules[trial.lock].wait(10), f"{trial.lock}: no reply was cut")
        return f"{len(self.rules)} replies were cut"

    def act(self, trial: Trial) -> None:
        """The victim asks again by itself."""

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        for rule in self.rules.values():
            rule.cancel()
