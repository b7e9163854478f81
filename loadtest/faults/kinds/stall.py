"""`stall`: Redis is stopped for longer than its clients' timeout.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import os
import signal

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS_NODE
from loadtest.faults.trial import Trial

#: Delay of each chunk of bytes between node A and Redis while the first buyers buy. It makes their
#: requests overlap, so that each of them opens a connection.
FIRST_BUYERS_DELAY_SECONDS = 0.05


class StallFault(Fault):
    """Valkey is stopped by SIGSTOP for longer than its clients' timeout.

    A client sends a command and gives up after its timeout. The command stays in the socket's
    buffer, and Valkey executes it after SIGCONT. So a lock may be left without a holder. This only
    happens on a connection that is already open: on a new one the client first waits for Valkey,
    and sends no command.
    """

    name = "stall"
    title = "Redis is stopped past its clients' timeout"

    def arm(self) -> None:
        """Delay the bytes between node A and Redis while the first buyers buy.

        The delay makes the requests of the first buyers overlap, so node A opens a connection for
        each of them. Later every victim finds an open connection in the pool.
        """
        self.undo_on_heal.callback(self.testbed.redis_proxies[VICTIMS_NODE].pass_on)
        self.testbed.redis_proxies[VICTIMS_NODE].delay(FIRST_BUYERS_DELAY_SECONDS)

    def start_first_buyers(self, trial: Trial) -> None:
        """Let a first buyer buy on node A. run_buyers() starts the victim later."""
        self.require_first_sale(trial, VICTIMS_NODE)

    def fire(self) -> None:
        """End the delay, and stop Valkey. heal() continues Valkey."""
        self.heal()  # ends the delay that arm() has begun
        self.pid = int(self.run_redis_command("INFO", "server")["process_id"])
        self.undo_on_heal.callback(os.kill, self.pid, signal.SIGCONT)
        os.kill(self.pid, signal.SIGSTOP)

    def prove(self) -> str:
        """Prove that the process of Valkey is stopped."""
        self.require_soon(self.is_in_effect, "Redis still runs", seconds=2.0)
        return "the process of Redis is stopped (state T) while the victims buy"

    def is_in_effect(self) -> bool:
        """Return whether the process of Valkey is stopped."""
        return measure.read_process_state(self.pid) == psutil.STATUS_STOPPED

    def run_buyers(self, trial: Trial) -> None:
        """Let a victim send a request while Redis is stopped, and check its outcome.

        The trial is inconclusive if the proxy has seen no command of the victim to Redis.
        """
        proxy = self.testbed.redis_proxies[VICTIMS_NODE]
        command_rule = proxy.look_for(trial.victim_command_text.encode())
        self.expect_outcome(trial, "victim-1", *trial.outcomes_without_redis, node=VICTIMS_NODE)
        command_rule.cancel()
        # The proxy recognizes the command by the product's name or the attempt. A lock that a user
        # wrote in the workshop may send neither, so the check is skipped for it. Among the
        # strategies that are run under this fault, only such a lock has the field `verdicts`.
        is_lock_of_workshop = "verdicts" in trial.strategy
        if not (command_rule.fired or is_lock_of_workshop):
            trial.mark_inconclusive("the victim sent no command to Redis")
