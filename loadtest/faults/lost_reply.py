"""lost-reply: Redis carries a command out, and its reply is lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from loadtest.faults import measure
from loadtest.faults.fault import Fault, NotFired
from loadtest.faults.testbed import VICTIMS, Testbed
from loadtest.faults.trial import Trial
from servers.proxy.proxy import LostReply

#: Where Redlock's victim stops: its majority has the lock though one reply was lost.
HAS_LOCK = "acquired"


class LostReplies(Fault):
    """The proxy drops the reply to the victim's first command that names its product: the one that
    takes the lock. The victim is answered `unavailable`, its command took effect all the
    same, and it asks again with the same key. Redlock does not need that one reply."""

    name = "lost-reply"
    title = "the reply that says that the lock is ours is cut off"

    def __init__(self) -> None:
        super().__init__()
        # One victim after the other: the locks of an asgi node share a connection, and a reply that
        # is cut off closes it, with what another victim has just sent.
        self.asking = threading.Lock()

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.rules: dict[str, LostReply] = {}
        self.before: dict[str, dict[str, object]] = {}
        self.clients: dict[str, dict[str, str]] = {}
        for trial in trials:
            # A first buyer, so that the server knows the scripts: else NOSCRIPT would be cut off.
            first = trial.ask_once("early", VICTIMS)
            self.require(first == "sold", f"{trial.lock}: the first buyer was answered {first}")
            self.before[trial.lock] = self.on_server(trial)
            if _is_redlock(trial):
                self.clients = _clients(testbed)
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
            with self.asking:
                victim.ask(trial.testbed.shop(VICTIMS))
        reached = self.reached_server(trial)
        self.require(self.rules[trial.lock].wait(0), "no reply was cut")
        answers = {"", "unavailable"} if stop else trial.without_reply
        self.require(victim.first in answers, f"the victim was answered {victim.first}")
        self.require(reached, "the command that lost its reply never reached the server")
        if stop:
            self.require(not self.asked_redlock(trial), "the reply was not cut off")

    def asked_redlock(self, trial: Trial) -> bool:
        """Whether a connection to Redlock's first server has asked for a lock since the first
        buyer: the victim's is still there, so it was not cut."""
        now = _clients(trial.testbed)
        return any(
            client["cmd"] == "set" and client != self.clients.get(number)
            for number, client in now.items()
        )

    def reached_server(self, trial: Trial) -> bool:
        """Whether the command that lost its reply left something on the server. RedisLock takes its
        lock back at once; its fence stays."""
        return self.on_server(trial) != self.before[trial.lock]

    @staticmethod
    def on_server(trial: Trial) -> dict[str, object]:
        """The keys of the trial's lock with their values."""
        testbed, names = trial.testbed, measure.names_of(trial.lock, trial.product)
        keys = [*names, *(f"{name}:fence" for name in names)]
        server, db = testbed.main, measure.LOCKS_DB
        if _is_redlock(trial):
            server, db = testbed.valkeys[1], measure.REDLOCK_DB
        if trial.strategy["reserves"]:
            keys = [f"stock:{{{trial.sale}}}:held", f"stock:{{{trial.lock}}}:{trial.sale}"]
        return {key: testbed.ask(server, "DUMP", key, db=db) for key in keys}

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """The victims' requests fired it."""

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        shown = [trial for trial in trials if not trial.missing]
        if not shown:
            raise NotFired(trials[0].missing)
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


def _clients(testbed: Testbed) -> dict[str, dict[str, str]]:
    """The connections to Redlock's first server: what each sent last, and how much it sent."""
    clients = testbed.ask(testbed.valkeys[1], "CLIENT LIST", db=measure.REDLOCK_DB)
    fields = ("cmd", "tot-net-in", "tot-cmds")
    return {one["id"]: {name: one.get(name, "") for name in fields} for one in clients}
