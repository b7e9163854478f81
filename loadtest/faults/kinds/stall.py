"""`stall`: Redis is stopped for longer than its clients' timeout.

Node A serves the victims, node B their rivals; fault.py explains these words and the steps.
"""

import os
import signal

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS_NODE
from loadtest.faults.trial import Trial

#: Delay of each chunk of bytes between node A and Redis while the first buyers buy.
CONNECT_DELAY_SECONDS = 0.05


class StallFault(Fault):
    """Valkey is stopped by SIGSTOP for longer than its clients' timeout.

    A command whose client has given up stays in the socket's buffer, and Valkey executes it after
    SIGCONT. So a lock may be left without a holder. For that the client needs an open connection:
    on a new one it waits for Valkey before it sends a command.
    """

    name = "stall"
    title = "Redis is stopped past its clients' timeout"

    def arm(self) -> None:
        """Delay the first buyers on their way to Redis, so that their requests overlap.

        Therefore each of them opens a connection, and every victim will find an open one.
        """
        self.healing.callback(self.testbed.redis_proxies[VICTIMS_NODE].pass_on)
        self.testbed.redis_proxies[VICTIMS_NODE].delay(CONNECT_DELAY_SECONDS)

    def enter(self, trial: Trial) -> None:
        """Let a first buyer buy on node A; run_buyers() sends the victim later."""
        self.require_first_sale(trial, VICTIMS_NODE)

    def fire(self) -> None:
        self.heal()  # undoes arm(): the proxy delays nothing any more
        self.pid = int(self.run_redis_command("INFO", "server")["process_id"])
        self.healing.callback(os.kill, self.pid, signal.SIGCONT)
        os.kill(self.pid, signal.SIGSTOP)

    def prove(self) -> str:
        self.require_soon(self.is_in_effect, "Redis still runs", seconds=2.0)
        return "Redis is in state T until every victim has given up"

    def is_in_effect(self) -> bool:
        return measure.read_process_state(self.pid) == psutil.STATUS_STOPPED

    def run_buyers(self, trial: Trial) -> None:
        """Let a victim ask while Redis is stopped, and check that its command was sent.

        The proxy looks for a command with the trial's product or attempt.
        """
        rule = self.testbed.redis_proxies[VICTIMS_NODE].look_for(
            trial.text_in_victims_commands.encode()
        )
        self.expect_outcome(trial, "victim-1", *trial.outcomes_without_redis, node=VICTIMS_NODE)
        rule.cancel()
        # The key of a lock that a participant of the workshop has written may lack the product's
        # name, so the proxy may miss its commands. Under this fault only such a strategy has the
        # field `verdicts`.
        is_participants_lock = "verdicts" in trial.strategy
        if not (rule.fired or is_participants_lock):
            trial.mark_inconclusive("the victim sent no command to Redis")
