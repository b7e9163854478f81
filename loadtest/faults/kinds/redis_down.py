"""`redis-down`: Redis is down, and later back and empty.

Node A serves the victims, node B their rivals; fault.py explains these words and the steps.
"""

import signal

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial


class RedisDownFault(Fault):
    """Valkey is killed, and later starts empty. Until then no strategy that uses it may sell."""

    name = "redis-down"
    title = "Redis is down, later back and empty"
    point = ""
    loses_accepted_orders = True

    def fire(self) -> None:
        self.healing.callback(self.testbed.restart_empty, self.testbed.main_redis)
        self.testbed.main_redis.stop(signal.SIGKILL)

    def prove(self) -> str:
        self.require(self.is_in_effect(), "Redis answers")
        return "Redis answers nothing, before the buyers ask and after"

    def is_in_effect(self) -> bool:
        return not measure.redis_run_id(self.testbed.main_redis)

    def run_buyers(self, trial: Trial) -> None:
        """Let three buyers ask while Redis is down."""
        expected_outcome = "unavailable"
        if trial.strategy["backend"] == "postgresql":  # guarded by the shop's database alone
            expected_outcome = "sold"
        for number in (1, 2, 3):
            self.expect_outcome(trial, f"rival-{number}", expected_outcome)
