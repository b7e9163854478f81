"""`stall`: Redis is stopped for longer than its clients' timeout."""

import os
import signal

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS_NODE
from loadtest.faults.trial import Trial

#: Seconds for each chunk between node A and Redis while `stall` has its first buyers.
CONNECT_DELAY_SECONDS = 0.05


class StallFault(Fault):
    """SIGSTOP of Valkey for longer than its clients' timeout.

    A command whose client has given up stays in the socket's buffer and is executed after SIGCONT:
    that leaves a lock without a holder. It happens only on a connection that is open already, since
    a new connection waits for Redis before it sends anything.
    """

    name = "stall"
    title = "Redis is stopped past its clients' timeout"

    def arm(self) -> None:
        """Slow the first buyers down, so that they overlap and each opens a connection."""
        self.healing.callback(self.testbed.redis[VICTIMS_NODE].pass_on)
        self.testbed.redis[VICTIMS_NODE].delay(CONNECT_DELAY_SECONDS)

    def enter(self, trial: Trial) -> None:
        self.require_first_sale(trial, VICTIMS_NODE)

    def fire(self) -> None:
        self.heal()
        self.pid = int(self.run_redis_command("INFO", "server")["process_id"])
        self.healing.callback(os.kill, self.pid, signal.SIGCONT)
        os.kill(self.pid, signal.SIGSTOP)

    def prove(self) -> str:
        self.require_soon(self.is_in_effect, "Redis still runs", 2.0)
        return "Redis is in state T until every victim has given up"

    def is_in_effect(self) -> bool:
        return measure.state_of(self.pid) == psutil.STATUS_STOPPED

    def act(self, trial: Trial) -> None:
        sent = self.testbed.redis[VICTIMS_NODE].look_for(trial.text_in_victims_commands.encode())
        self.expect_outcome(trial, "victim-1", *trial.outcomes_without_redis, node=VICTIMS_NODE)
        sent.cancel()
        is_own = "verdicts" in trial.strategy  # a participant's lock has any name, or none
        if not (sent.fired or is_own):
            trial.mark_inconclusive("no command of the victim was on its way to Redis")
