"""`lost-reply`: the reply to the command that takes the lock is lost.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
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

    This is the victim's first command that contains trial.victim_command_text. The command takes
    effect, but the victim is answered `unavailable`. If the command stores a promise of an order,
    the answer may also be `unknown`. Then the victim sends its request again, with the same key.

    Redlock loses only one of five replies. Its victim still gets the lock from a majority of
    the servers, and stops at the point `acquired`. The victims of other strategies do not stop.
    """

    name = "lost-reply"
    title = "the reply to the command that takes the lock is dropped"
    victim_stop_point = ""

    def arm(self) -> None:
        """Create the lock that lets the victims send their requests one after the other.

        On an ASGI node the victims' commands share a connection to Redis. The proxy closes this
        connection when it drops a reply, so the request of another victim would fail.
        """
        self.one_victim_at_a_time = threading.Lock()

    def start_first_buyers(self, trial: Trial) -> None:
        """Let the victim send its request, and drop the reply to its command.

        Then check that the command took effect: it must have changed the key of the lock or the key
        with the lock's last fence. RedisLock deletes the lock's key after a lost reply, but the
        fence's key stays changed.
        """
        with self.one_victim_at_a_time:
            # A first buyer buys before the victim, so that Redis has loaded the scripts. Otherwise
            # the reply to the victim's command would be the error NOSCRIPT.
            self.require_first_sale(trial, VICTIMS_NODE)
            keys_before = self._dump_lock_keys(trial)
            trial.victim = trial.add_buyer("victim", stop_at=trial.victim_stop_point)
            if _is_redlock(trial):
                self._start_victim_and_drop_redlock_reply(trial)
            else:
                self._send_request_and_drop_reply(trial)
            took_effect = self._dump_lock_keys(trial) != keys_before
        self.require(took_effect, "the victim's command changed nothing on the server")

    def _send_request_and_drop_reply(self, trial: Trial) -> None:
        """Let the victim send its request, drop one reply of Redis, and check the outcome.

        The victim is the buyer whom the fault hits. The dropped reply is that to the command that
        takes the lock or reserves a unit.
        """
        drop_rule = self._add_drop_rule(trial, self.testbed.redis_proxies[VICTIMS_NODE])
        outcome = trial.victim.send_request(self.testbed.shop(VICTIMS_NODE))
        self.require(drop_rule.fired, "the proxy dropped no reply")
        is_allowed = outcome in trial.outcomes_without_redis
        self.require(is_allowed, f"the victim was answered {outcome}")

    def _start_victim_and_drop_redlock_reply(self, trial: Trial) -> None:
        """Start the victim, and drop the reply of one of Redlock's five servers.

        The victim still gets the lock from the other four servers. Its purchase stops after that,
        at its `stop_at`.
        """
        victim = trial.victim
        connections_before = self._find_connections_with_set_as_last_command()
        drop_rule = self._add_drop_rule(trial, self.testbed.redlock_proxies[0])
        trial.start_buyer(victim, VICTIMS_NODE)
        message = "Redlock's victim did not get its lock"
        self.require_soon(lambda: self.testbed.has_stopped_at(victim), message)
        self.require_soon(lambda: drop_rule.fired, "the proxy dropped no reply", seconds=1.0)
        outcome = victim.first_outcome  # empty while the victim's purchase is stopped
        self.require(outcome in {"", "unavailable"}, f"the victim was answered {outcome}")
        # The lock is acquired by a SET, and the victim sends no other command while it is stopped.
        # If the proxy had passed on the reply, a connection whose last command is this SET would
        # be open now. But the proxy has dropped the reply, and closes the connection then.
        self.require_soon(
            lambda: self._find_connections_with_set_as_last_command() <= connections_before,
            "the reply was not dropped",
            seconds=1.0,
        )

    def _add_drop_rule(self, trial: Trial, proxy: Proxy) -> ProxyRule:
        """Make the proxy drop the reply to the victim's next command, and return the proxy's rule.

        The rule's `fired` tells whether the proxy has dropped the reply.
        """
        drop_rule = proxy.lose_reply(trial.victim_command_text.encode())
        self.undo_on_heal.callback(drop_rule.cancel)
        return drop_rule

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

        For a strategy that reserves units in Redis instead of locking, return the keys of its
        reserved units and of its stock. The value is None for a key that the server does not have.
        """
        keys = list(measure.list_lock_keys(trial.strategy_name, trial.product))
        keys += [f"{name}:fence" for name in keys]
        server = self.testbed.main_redis
        db = measure.LOCKS_DB
        if _is_redlock(trial):
            server = self.testbed.valkeys[1]  # Redlock's first server
            db = measure.REDLOCK_DB
        if trial.strategy["reserves"]:
            # There is no lock. The victim's command takes a unit from the stock in Redis. The
            # strategy `counter` has its reserved units in the first key. The strategy `reserve` has
            # its stock in the second one.
            keys = [f"stock:{{{trial.sale}}}:held", f"stock:{{{trial.strategy_name}}}:{trial.sale}"]
        return {key: measure.run_command(server, "DUMP", key, db=db) for key in keys}

    def prove(self) -> str:
        """Return in how many trials start_first_buyers() has dropped a reply.

        start_first_buyers() has also checked that each command took effect.
        """
        conclusive_trials = [trial for trial in self.trials if not trial.inconclusive_reason]
        if not conclusive_trials:
            raise NotFired(self.trials[0].inconclusive_reason)
        return (
            f"{len(conclusive_trials)} replies were dropped: the victims were answered unavailable "
            "(redlock: got its lock from the other servers), and their commands had taken effect"
        )

    def run_buyers(self, trial: Trial) -> None:
        """Let the victim send its request again.

        The victim of the strategy `redlock` has its lock already, and its purchase is stopped. So
        the purchase is resumed instead.
        """
        if _is_redlock(trial):
            self.testbed.resume(trial.victim)
        else:
            trial.start_buyer(trial.victim, VICTIMS_NODE)


def _is_redlock(trial: Trial) -> bool:
    return trial.strategy["backend"] == "redlock"
