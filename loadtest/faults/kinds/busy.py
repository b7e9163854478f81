"""`busy`: an endless script keeps Redis busy."""

import threading
import time
from functools import partial

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import wait_for
from loadtest.faults.trial import Trial

ENDLESS = "while true do end"
KILL_SCRIPT = ("SCRIPT", "KILL")
WRITES = "redis.call('set', KEYS[1], 1) while true do end"
#: Milliseconds after which Redis answers BUSY, and seconds that it stays busy: less than a ttl.
THRESHOLD = "50"
BUSY_SECONDS = 0.4


class BusyFault(Fault):
    """First an endless script that has written: SCRIPT KILL answers UNKILLABLE, and only SHUTDOWN
    NOSAVE helps. Then, while victims hold their locks, one that SCRIPT KILL ends."""

    name = "busy"
    title = "an endless script; SCRIPT KILL, SHUTDOWN NOSAVE"

    def arm(self) -> None:
        self.refused: list[Trial] = []
        self._begin(WRITES)
        for trial in self.trials:
            self.must_be_answered(trial, "unkillable", "unavailable")
        self.unkillable = self.error(*KILL_SCRIPT)
        self.require("UNKILLABLE" in self.unkillable, f"SCRIPT KILL answered {self.unkillable}")
        self.error("SHUTDOWN", "NOSAVE")  # it ends without an answer
        self.script.join(5)
        self.require(not self.script.is_alive(), "SHUTDOWN NOSAVE ended no script")
        self.testbed.restart_empty(self.testbed.main)

    def fire(self) -> None:
        self._begin(ENDLESS)

    def prove(self) -> str:
        self.require(self.lasts(), "Redis is not busy any more")
        return "Redis answers BUSY, before the buyers ask and after"

    def observed(self) -> str:
        return f"to SCRIPT KILL of the first script: {self.unkillable}"

    def act(self, trial: Trial) -> None:
        """Resume the victim while Redis is busy, so that its release is refused."""
        trial.resume_victim()
        self.must_be_answered(trial, "rival-1", "unavailable")
        self.refused.append(trial)

    def meanwhile(self) -> None:
        time.sleep(BUSY_SECONDS)
        wait_for(lambda: len(self.refused) == len(self.trials), 10)  # all have asked a busy Redis
        error = self.error(*KILL_SCRIPT)
        self.require(not error, f"the script ended early: SCRIPT KILL answered {error}")
        self.script.join(5)

    def lasts(self) -> bool:
        return "BUSY" in self.error("GET", "x", timeout=1)

    def _begin(self, script: str) -> None:
        """Run an endless script in a thread, which ends with it: SCRIPT KILL is its error."""
        self.healing.callback(self.ask, "CONFIG", "SET", "busy-reply-threshold", "5000")
        self.healing.callback(self.error, *KILL_SCRIPT)
        self.ask("CONFIG", "SET", "busy-reply-threshold", THRESHOLD)
        run = partial(self.error, "EVAL", script, 1, "endless", timeout=30)
        self.script = threading.Thread(target=run, daemon=True)
        self.script.start()
        self.require_soon(self.lasts, "Redis is not busy", 5.0)
