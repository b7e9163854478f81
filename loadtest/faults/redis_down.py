"""redis-down: Redis is gone for a while."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import redis

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Testbed
from loadtest.faults.trial import Trial


class RedisDown(Fault):
    """SIGKILL of Valkey; later it starts empty. Meanwhile no strategy that needs it may sell."""

    name = "redis-down"
    title = "Redis is down, later back and empty"
    loses_promises = True

    def enter(self, trial: Trial) -> None:
        first = trial.ask_once("early")
        self.require(
            first == "sold", f"{trial.lock}: the first buyer was answered {first} before the fault"
        )

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        testbed.main.stop(signal.SIGKILL)

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        self.require(_is_down(testbed), "Redis answers")
        return "a connection for PING is refused, before the buyers ask and after"

    def act(self, trial: Trial) -> None:
        wanted = "sold" if trial.strategy["backend"] == "postgresql" else "unavailable"
        for number in (1, 2, 3):
            outcome = trial.ask_once(f"rival-{number}")
            if not _is_down(trial.testbed):
                trial.miss("Redis was back before the buyers had asked")
            elif outcome != wanted:
                trial.wrong.append(f"rival-{number} was answered {outcome}, not {wanted}")

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        testbed.restart_empty()  # kills it first if it runs, or it would be left behind


def _is_down(testbed: Testbed) -> bool:
    try:
        testbed.ask(testbed.main, "PING")
    except redis.ConnectionError:
        return True
    return False
