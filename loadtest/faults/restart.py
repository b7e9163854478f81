"""restart, redis-down: Redis is killed, and starts empty at once or later."""

from __future__ import annotations

import signal

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial


class Restart(Fault):
    """SIGKILL of Valkey and a start with an empty memory, on the same port.

    Of Redlock's five servers 4 and 5 are cut off while the victim locks 1, 2 and 3. Then 3 restarts
    empty and 4 and 5 are back: 3, 4 and 5 are a majority for the rival.
    """

    name = "restart"
    title = "Redis restarts empty while a holder is inside"
    loses_promises = True
    grace = 0.8
    ttl = 5.0
    takes_the_lock = True

    def arm(self) -> None:
        for proxy in self.testbed.redlock[3:]:
            proxy.refuse()

    def fire(self) -> None:
        self.before = self._run_ids()
        self.held = self.count_held()
        self.testbed.restart_empty()
        for third in self.testbed.valkeys[3:4]:  # a small testbed has none
            third.stop(signal.SIGKILL)
            self.testbed.start_again(third)
        self.heal()

    def prove(self) -> str:
        same = self.before & self._run_ids()
        self.require(not same, "Redis, or Redlock's third server, did not restart")
        self.require_no_lock()
        return f"new run_ids, and no key of the {self.held} locks held before"

    def heal(self) -> None:
        for proxy in self.testbed.redlock:
            proxy.pass_on()

    def _run_ids(self) -> set[str]:
        """Of the main Redis, and of Redlock's third server where there is one."""
        servers = (self.testbed.main, *self.testbed.valkeys[3:4])
        return {measure.run_id(one, 5.0) for one in servers}


class RedisDown(Fault):
    """SIGKILL of Valkey; later it starts empty. Meanwhile no strategy that needs it may sell."""

    name = "redis-down"
    title = "Redis is down, later back and empty"
    loses_promises = True

    def enter(self, trial: Trial) -> None:
        self.require_a_sale(trial)

    def fire(self) -> None:
        self.testbed.main.stop(signal.SIGKILL)

    def prove(self) -> str:
        self.require(not measure.run_id(self.testbed.main), "Redis answers")
        return "Redis answers nothing, before the buyers ask and after"

    def act(self, trial: Trial) -> None:
        wanted = "sold" if trial.strategy["backend"] == "postgresql" else "unavailable"
        for number in (1, 2, 3):
            trial.must_be_answered(f"rival-{number}", wanted)
        if measure.run_id(self.testbed.main):
            trial.miss("Redis was back before the buyers had asked")

    def heal(self) -> None:
        self.testbed.restart_empty()  # kills it first if it runs, or it would be left behind
