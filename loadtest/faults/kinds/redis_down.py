"""`redis-down`: Redis is down, and later back and empty.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import signal

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial


class RedisDownFault(Fault):
    """Valkey is killed, and later started without its data.

    While it is down, strategies that use Redis must refuse buyers, and the others must sell.
    """

    name = "redis-down"
    title = "Redis is down, later back and empty"
    victim_stop_point = ""
    loses_promised_orders = True

    def fire(self) -> None:
        """Kill Valkey. heal() starts it again."""
        self.undo_on_heal.callback(self.testbed.restart_empty, self.testbed.main_redis)
        self.testbed.main_redis.stop(signal.SIGKILL)

    def prove(self) -> str:
        """Prove that Redis does not answer."""
        self.require(self.is_in_effect(), "Redis answers")
        return "Redis does not answer, neither before nor after the buyers' requests"

    def is_in_effect(self) -> bool:
        """Return whether Redis does not answer."""
        return not measure.read_redis_run_id(self.testbed.main_redis)

    def run_buyers(self, trial: Trial) -> None:
        """Let three buyers send a request while Redis is down, and check the outcomes."""
        expected_outcome = "unavailable"
        if trial.strategy["backend"] == "postgresql":  # the strategy does not use Redis
            expected_outcome = "sold"
        for number in (1, 2, 3):
            self.expect_outcome(trial, f"rival-{number}", expected_outcome)
