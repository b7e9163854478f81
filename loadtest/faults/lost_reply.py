"""lost-reply: Redis carries a command out, and its reply is lost."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS, Testbed
from loadtest.faults.trial import Trial
from servers.proxy.proxy import LostReply

#: Where Redlock's victim stops: its majority has the lock though one reply was lost.
HAS_LOCK = "acquired"


class LostReplies(Fault):
    """The proxy drops the reply to the victim's first command that names its product: the one that
    takes the lock. The victim is answered `unavailable`, what it asked for is on the server all
    the same, and it asks again with the same key. Redlock does not need that one reply."""

    name = "lost-reply"
    title = "the reply that says that the lock is ours is cut off"

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.rules: dict[str, LostReply] = {}
        for trial in trials:
            # A reservation does not name the product, but its arguments name the attempt.
            names = f"{trial.attempts}/victim" if trial.strategy["reserves"] else trial.product
            proxy = testbed.redlock[0] if _is_redlock(trial) else testbed.redis[VICTIMS]
            self.rules[trial.lock] = proxy.lose_reply(names.encode())

    def enter(self, trial: Trial) -> None:
        """Let the victim ask once, and look for its lock before it asks again."""
        stop = HAS_LOCK if _is_redlock(trial) else ""
        victim = trial.victim = trial.buyer("victim", stop=stop)
        if stop:
            trial.send(victim, VICTIMS)
            self.require_soon(lambda: trial.is_stopped_at(victim), "Redlock has no majority")
        else:
            victim.take(victim.ask(trial.testbed.shop(VICTIMS)))
        keys = self.keys_on_server(trial)
        self.require(self.rules[trial.lock].wait(0), "no reply was cut")
        answers = {"", "unavailable"} if stop else {"unavailable"}
        self.require(victim.first in answers, f"the victim was answered {victim.first}")
        self.require(keys, "the command that lost its reply never reached the server")

    @staticmethod
    def keys_on_server(trial: Trial) -> list[str]:
        """What the command that lost its reply left on the server. RedisLock takes its lock back at
        once; the fence stays."""
        testbed, names = trial.testbed, measure.names_of(trial.lock, trial.product)
        server, db = testbed.main, measure.LOCKS_DB
        if _is_redlock(trial):
            server, db = testbed.valkeys[1], measure.REDLOCK_DB
        if trial.strategy["reserves"]:
            names = (f"stock:{{{trial.sale}}}:held", "")
        keys = [*names, *(f"{name}:fence" for name in names)]
        return [key for key in keys if key and testbed.ask(server, "EXISTS", key, db=db)]

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """The victims' requests fired it."""

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        shown = [trial for trial in trials if not trial.missing]
        self.require(shown, trials[0].missing)
        return (
            f"{len(shown)} replies were cut: the victims were answered unavailable (redlock: has "
            "its majority), and what they asked for was on the server"
        )

    def act(self, trial: Trial) -> None:
        """The victim asks again, or goes on."""
        assert trial.victim is not None
        if trial.victim.started:
            trial.testbed.resume(trial.victim.attempt, HAS_LOCK)
        else:
            trial.send(trial.victim, VICTIMS)

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        for rule in self.rules.values():
            rule.cancel()


def _is_redlock(trial: Trial) -> bool:
    return bool(trial.strategy["backend"] == "redlock")
