"""`lost-reply`: the reply to the command that takes the lock is lost.

Node A serves the victims, node B their rivals; fault.py explains these words and the steps.
"""

import threading

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS_NODE
from loadtest.faults.trial import NotFired, Trial
from servers.proxy.connection import ProxyRule
from servers.proxy.proxy import Proxy


class LostReplyFault(Fault):
    """The proxy drops the reply to the victim's command that takes the lock, or reserves a unit.

    This is its first command with trial.text_in_victims_commands. The victim is answered
    `unavailable`, or after a promise `unknown`, although the command took effect. It asks again
    with the same key. Redlock loses one of five replies: its victim has a majority all the same,
    and stops at the point `acquired`. The other victims stop at no point.
    """

    name = "lost-reply"
    title = "the reply that says that the lock is ours is cut off"
    point = ""

    def arm(self) -> None:
        # Makes the victims ask one after the other. On an ASGI node they share a connection. The
        # proxy closes it when it drops a reply, so another victim's request would fail.
        self.victim_turn = threading.Lock()

    def enter(self, trial: Trial) -> None:
        """Let the victim send its request, and lose the reply to its command.

        Then check that the command took effect: it must have changed a key of the lock, or of the
        fence. RedisLock releases the lock after a lost reply, but the fence's key stays.
        """
        with self.victim_turn:
            # This first buyer makes Redis load the scripts. Without it, the dropped reply would be
            # the error NOSCRIPT.
            self.require_first_sale(trial, VICTIMS_NODE)
            keys_before = self._dump_lock_keys(trial)
            trial.victim = trial.add_buyer("victim", stop_at=trial.point)
            if _is_redlock(trial):
                self._lose_one_reply_of_redlock(trial)
            else:
                self._lose_reply(trial)
            took_effect = self._dump_lock_keys(trial) != keys_before
        self.require(took_effect, "the victim's command changed nothing on the server")

    def _lose_reply(self, trial: Trial) -> None:
        """Let the victim ask, drop the reply to its command, and check the victim's outcome."""
        rule = self._drop_reply(trial, self.testbed.redis_proxies[VICTIMS_NODE])
        outcome = trial.victim.ask(self.testbed.shop(VICTIMS_NODE))
        self.require(rule.fired, "the proxy dropped no reply")
        is_allowed = outcome in trial.outcomes_without_redis
        self.require(is_allowed, f"the victim was answered {outcome}")

    def _lose_one_reply_of_redlock(self, trial: Trial) -> None:
        """Start the victim, and drop the reply of one of Redlock's five servers.

        The victim still gets the lock by the other four, and stops at its point.
        """
        victim = trial.victim
        connections_before = self._find_connections_with_set_as_last_command()
        rule = self._drop_reply(trial, self.testbed.redlock_proxies[0])
        trial.send(victim, VICTIMS_NODE)
        message = "Redlock's victim did not get its lock"
        self.require_soon(lambda: self.testbed.has_stopped_at(victim), message)
        self.require_soon(lambda: rule.fired, "the proxy dropped no reply", seconds=1.0)
        outcome = victim.first_outcome  # empty while the victim waits at its point
        self.require(outcome in {"", "unavailable"}, f"the victim was answered {outcome}")
        # A proxy that drops a reply closes the connection. So no new connection with a SET as its
        # last command may be left: the victim has sent nothing since, as it still holds the lock.
        self.require_soon(
            lambda: self._find_connections_with_set_as_last_command() <= connections_before,
            "the reply was not dropped",
            seconds=1.0,
        )

    def _drop_reply(self, trial: Trial, proxy: Proxy) -> ProxyRule:
        """Add a rule to the proxy that drops the reply to the victim's first command.

        Return the rule.
        """
        rule = proxy.lose_reply(trial.text_in_victims_commands.encode())
        self.healing.callback(rule.cancel)
        return rule

    def _find_connections_with_set_as_last_command(self) -> set[tuple[str, str]]:
        """Return the connections to Redlock's first server whose last command was a SET.

        Each is a pair: the connection's id, and the number of commands that it has sent.
        """
        clients = measure.run_command(self.testbed.valkeys[1], "CLIENT LIST", db=measure.REDLOCK_DB)
        return {
            (client["id"], client.get("tot-cmds", ""))
            for client in clients
            if client["cmd"] == "set"
        }

    def _dump_lock_keys(self, trial: Trial) -> dict[str, object]:
        """Return the keys of the trial's lock and of its fence, with their serialized values.

        The value is None for a key that the server does not have.
        """
        keys = list(measure.lock_keys_of(trial.strategy_name, trial.product))
        keys += [f"{name}:fence" for name in keys]
        server = self.testbed.main_redis
        db = measure.LOCKS_DB
        if _is_redlock(trial):
            server = self.testbed.valkeys[1]
            db = measure.REDLOCK_DB
        if trial.strategy["reserves"]:
            # There is no lock. The victim's command takes a unit from the stock in Redis.
            keys = [f"stock:{{{trial.sale}}}:held", f"stock:{{{trial.strategy_name}}}:{trial.sale}"]
        return {key: measure.run_command(server, "DUMP", key, db=db) for key in keys}

    def prove(self) -> str:
        proven_trials = [trial for trial in self.trials if not trial.inconclusive_reason]
        if not proven_trials:
            raise NotFired(self.trials[0].inconclusive_reason)
        return (
            f"{len(proven_trials)} replies were cut: the victims were answered unavailable "
            "(redlock: has its majority), and what they asked for was on the server"
        )

    def run_buyers(self, trial: Trial) -> None:
        """Let the victim ask again. Redlock's victim has its lock already, so resume that one."""
        if _is_redlock(trial):
            self.testbed.resume(trial.victim)
        else:
            trial.send(trial.victim, VICTIMS_NODE)


def _is_redlock(trial: Trial) -> bool:
    return trial.strategy["backend"] == "redlock"
