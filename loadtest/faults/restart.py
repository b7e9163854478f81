"""restart: Redis is killed and starts empty while a holder has its lock."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Testbed
from loadtest.faults.trial import Trial, still_held


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

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        for proxy in testbed.redlock[3:]:
            proxy.refuse()

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.before = self._run_ids(testbed)
        self.held = still_held(trials)
        testbed.restart_empty()
        for third in testbed.valkeys[3:4]:  # a small testbed has none
            third.stop(signal.SIGKILL)
            testbed.start_again(third)
        for proxy in testbed.redlock[3:]:
            proxy.pass_on()

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        same = set(self.before) & set(self._run_ids(testbed))
        self.require(not same, "Redis, or Redlock's third server, did not restart")
        left = [trial.lock for trial in trials if trial.orphans()]
        self.require(not left, f"locks survived: {left}")
        return f"new run_ids, and no key of the {len(self.held)} locks held before"

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        for proxy in testbed.redlock:
            proxy.pass_on()

    @staticmethod
    def _run_ids(testbed: Testbed) -> list[str]:
        """Of the main Redis, and of Redlock's third server where there is one."""
        servers = (testbed.main, *testbed.valkeys[3:4])
        return [str(testbed.ask(server, "INFO", "server")["run_id"]) for server in servers]
