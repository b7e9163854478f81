"""lost-reply, unknown-commit: a server carries a command out, and its reply is lost."""

import threading

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS
from loadtest.faults.trial import STOCK, NotFired, Trial


class LostReplies(Fault):
    """The proxy drops the reply to the victim's first command that names its product: the one that
    takes the lock. The victim is answered `unavailable`, its command took effect all the
    same, and it asks again with the same key. Redlock does not need that one reply: its victim has
    a majority, and stops there."""

    name = "lost-reply"
    title = "the reply that says that the lock is ours is cut off"
    stop = ""

    def arm(self) -> None:
        # One victim after the other: the locks of an asgi node share a connection, and a reply that
        # is cut off closes it, with what another victim has just sent.
        self.asking = threading.Lock()

    def enter(self, trial: Trial) -> None:
        """Let the victim ask once, and look for its lock before it asks again. RedisLock takes its
        lock back at once; its fence stays."""
        with self.asking:
            # A first buyer, so that the server knows the scripts: else NOSCRIPT would be cut off.
            self.require_a_sale(trial, VICTIMS)
            before = self._on_server(trial)
            early = self._asked_redlock() if trial.stop else set()
            # A reservation does not name the product, but its arguments name the attempt.
            names = f"{trial.attempts}/victim" if trial.strategy["reserves"] else trial.product
            proxy = self.testbed.redlock[0] if trial.stop else self.testbed.redis[VICTIMS]
            rule = proxy.lose_reply(names.encode())
            self.healing.callback(rule.cancel)
            victim = trial.victim = trial.buyer("victim", stop=trial.stop)
            if trial.stop:
                trial.send(victim, VICTIMS)
                nobody = "Redlock has no majority"
                self.require_soon(lambda: self.testbed.is_stopped_at(victim), nobody)
            else:
                victim.ask(self.testbed.shop(VICTIMS))
            reached = self._on_server(trial) != before
        self.require(rule.fired, "no reply was cut")
        answers = {"", "unavailable"} if trial.stop else trial.without_reply
        self.require(victim.first in answers, f"the victim was answered {victim.first}")
        self.require(reached, "the command that lost its reply never reached the server")
        if trial.stop:
            # The victim has its lock still: its connection would be there if it had not been cut.
            self.require(self._asked_redlock() <= early, "the reply was not cut off")

    def _asked_redlock(self) -> set[tuple[str, str]]:
        """The connections to Redlock's first server that have just asked it for a lock, and how
        many commands each has sent."""
        clients = measure.ask(self.testbed.valkeys[1], "CLIENT LIST", db=measure.REDLOCK_DB)
        return {(one["id"], one.get("tot-cmds", "")) for one in clients if one["cmd"] == "set"}

    def _on_server(self, trial: Trial) -> dict[str, object]:
        """The keys of the trial's lock with their values."""
        names = measure.names_of(trial.lock, trial.product)
        keys = [*names, *(f"{name}:fence" for name in names)]
        server, db = self.testbed.main, measure.LOCKS_DB
        if trial.stop:
            server, db = self.testbed.valkeys[1], measure.REDLOCK_DB
        if trial.strategy["reserves"]:
            keys = [f"stock:{{{trial.sale}}}:held", f"stock:{{{trial.lock}}}:{trial.sale}"]
        return {key: measure.ask(server, "DUMP", key, db=db) for key in keys}

    def prove(self) -> str:
        shown = [trial for trial in self.trials if not trial.missing]
        if not shown:
            raise NotFired(self.trials[0].missing)
        return (
            f"{len(shown)} replies were cut: the victims were answered unavailable (redlock: has "
            "its majority), and what they asked for was on the server"
        )

    def act(self, trial: Trial) -> None:
        """The victim asks again, or goes on."""
        if trial.stop:
            self.testbed.resume(trial.victim)
        else:
            trial.send(trial.victim, VICTIMS)


class UnknownCommit(Fault):
    """The proxy drops PostgreSQL's reply to each victim's COMMIT. The row is there all the same.
    Each victim asks again with its key, and must get the order that it has, replayed, and not a
    second unit."""

    name = "unknown-commit"
    title = "the reply to COMMIT is dropped"

    def arm(self) -> None:
        self.committed: list[int] = []
        self.replayed: list[int] = []

    def enter(self, trial: Trial) -> None:
        """No victim stops anywhere."""

    def prove(self) -> str:
        """Each victim sets its own rule in act."""
        return "the proxy drops the replies, and counts them"

    def act(self, trial: Trial) -> None:
        """One victim for every unit, one after the other."""
        committed = replayed = 0
        shop = self.testbed.shop(VICTIMS)
        for number in range(1, STOCK + 1):
            victim = trial.buyer(f"victim-{number:02}")
            key = victim.attempt
            # Only its own transaction has its key; a product's name is also looked up elsewhere.
            rule = self.testbed.postgres.lose_reply(b"COMMIT", after=key.encode())
            victim.ask(shop)
            dropped = rule.fired
            there = [one["order"] for one in shop.orders(trial.sale) if one["key"] == key]
            committed += dropped and victim.first == "unknown" and len(there) == 1
            rule.cancel()
            trial.send(victim, VICTIMS).answered.wait(20)
            # It sells at once where the COMMIT did not happen; a replay shows the earlier row.
            said = victim.said
            replayed += bool(said.get("replayed")) and there == [said.get("order")]
        self.committed.append(committed)
        self.replayed.append(replayed)
        if committed < STOCK:
            trial.miss(f"{committed} of {STOCK} orders were there before their buyers asked again")
        elif replayed < STOCK:
            trial.wrong.append(f"{replayed} of {STOCK} victims got their one order replayed")

    def observed(self) -> str:
        """How many replies were dropped, and how many victims got their order."""
        return (
            f"{sum(self.committed)} replies to COMMIT were dropped and the order was there"
            f" before its buyer asked again; {sum(self.replayed)} buyers got it replayed"
        )
