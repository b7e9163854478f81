"""busy: an endless script keeps Redis from answering anybody."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import redis

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import until
from loadtest.faults.trial import Trial

ENDLESS = "while true do end"
WRITES = "redis.call('set', KEYS[1], 1) while true do end"
#: Milliseconds after which Redis answers BUSY, and seconds that it stays busy: less than a ttl.
THRESHOLD = "50"
BUSY = 0.4


class Busy(Fault):
    """First an endless script that has written: SCRIPT KILL answers UNKILLABLE, and only SHUTDOWN
    NOSAVE helps. Then, while victims hold their locks, one that SCRIPT KILL ends."""

    name = "busy"
    title = "an endless script; SCRIPT KILL, SHUTDOWN NOSAVE"

    def arm(self) -> None:
        self.refused: list[Trial] = []
        self._begin(WRITES)
        for trial in self.trials:
            self._refused(trial, "unkillable")
        self.unkillable = self._kill_script()
        self.require("UNKILLABLE" in self.unkillable, f"SCRIPT KILL answered {self.unkillable}")
        with suppress(redis.ConnectionError):  # it ends without an answer
            self.ask("SHUTDOWN", "NOSAVE")
        self.script.join(5)
        self.testbed.restart_empty()

    def fire(self) -> None:
        self.may_resume.clear()
        self._begin(ENDLESS)

    def prove(self) -> str:
        self.require(self.is_busy(), "Redis is not busy any more")
        return "Redis answers BUSY, before the buyers ask and after"

    def observed(self) -> str:
        return f"to SCRIPT KILL of the first script: {self.unkillable}"

    def meet(self, trial: Trial) -> None:
        """Resume the victim while Redis is busy, so that its release is refused."""
        trial.resume_victim()
        self._refused(trial, "rival-1")
        self.refused.append(trial)

    def resume(self, trial: Trial) -> None:
        """Everybody was resumed in meet."""

    def meanwhile(self) -> None:
        time.sleep(BUSY)
        until(lambda: len(self.refused) == len(self.trials), 10)  # all have asked a busy Redis
        answer = self._kill_script()
        self.require(answer == "OK", f"the script ended early: SCRIPT KILL answered {answer}")
        self.script.join(5)
        self.may_resume.set()

    def lasts(self) -> bool:
        """It ends here, by SCRIPT KILL, if it has not ended before."""
        return self._kill_script() == "OK"

    def heal(self) -> None:
        self._kill_script()
        self.ask("CONFIG", "SET", "busy-reply-threshold", "5000")

    def is_busy(self) -> bool:
        """Whether Redis answers BUSY."""
        try:
            self.ask("GET", "x", timeout=1)
        except redis.RedisError as error:
            return isinstance(error, redis.ResponseError) and "BUSY" in str(error)
        return False

    def _begin(self, script: str) -> None:
        """Run an endless script in a thread, which ends with it."""
        self.ask("CONFIG", "SET", "busy-reply-threshold", THRESHOLD)

        def run() -> None:
            with suppress(redis.RedisError):  # SCRIPT KILL ends it with an error
                self.ask("EVAL", script, 1, "endless", timeout=30)

        self.script = threading.Thread(target=run, daemon=True)
        self.script.start()
        self.require_soon(self.is_busy, "Redis is not busy", 5.0)

    def _kill_script(self) -> str:
        try:
            answer = self.ask("SCRIPT", "KILL")
        except redis.ResponseError as error:
            return str(error)
        return answer.decode() if isinstance(answer, bytes) else str(answer)

    def _refused(self, trial: Trial, name: str) -> None:
        trial.must_be_answered(name, "unavailable")
        if not self.is_busy():
            trial.miss(f"Redis was busy no longer when {name} was answered")
