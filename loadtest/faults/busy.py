"""busy: an endless script keeps Redis from answering anybody."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import redis

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Testbed, until
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

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[Trial] = []
        self.unkillable = ""

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self._begin(testbed, WRITES)
        for trial in trials:
            self._refused(trial, "unkillable")
        self.unkillable = self._kill_script(testbed)
        self.require("UNKILLABLE" in self.unkillable, f"SCRIPT KILL answered {self.unkillable}")
        with suppress(redis.ConnectionError):  # it ends without an answer
            testbed.ask(testbed.main, "SHUTDOWN", "NOSAVE")
        self.script.join(5)
        testbed.restart_empty()

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.may_resume.clear()
        self._begin(testbed, ENDLESS)

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        self.require(is_busy(testbed), "Redis is not busy any more")
        return (
            "Redis answers BUSY, before the buyers ask and after; to SCRIPT KILL of the first "
            f"script: {self.unkillable}"
        )

    def meet(self, trial: Trial) -> None:
        """Resume the victim while Redis is busy, so that its release is refused."""
        trial.resume_victim()
        self._refused(trial, "rival-1")
        self.refused.append(trial)

    def resume(self, trial: Trial) -> None:
        """Everybody was resumed in meet."""

    def meanwhile(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        time.sleep(BUSY)
        until(lambda: len(self.refused) == len(trials), 10)  # all have asked a busy Redis
        answer = self._kill_script(testbed)
        self.require(answer == "OK", f"the script ended early: SCRIPT KILL answered {answer}")
        self.script.join(5)
        self.may_resume.set()

    def lasts(self, testbed: Testbed) -> bool:
        """It ends here, by SCRIPT KILL, if it has not ended before."""
        return self._kill_script(testbed) == "OK"

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self._kill_script(testbed)
        testbed.ask(testbed.main, "CONFIG", "SET", "busy-reply-threshold", "5000")

    def _begin(self, testbed: Testbed, script: str) -> None:
        testbed.ask(testbed.main, "CONFIG", "SET", "busy-reply-threshold", THRESHOLD)
        self.script = run_script(testbed, script)
        self.require_soon(lambda: is_busy(testbed), "Redis is not busy", 5.0)

    @staticmethod
    def _kill_script(testbed: Testbed) -> str:
        try:
            answer = testbed.ask(testbed.main, "SCRIPT", "KILL")
        except redis.ResponseError as error:
            return str(error)
        return answer.decode() if isinstance(answer, bytes) else str(answer)

    def _refused(self, trial: Trial, name: str) -> None:
        outcome = trial.ask_once(name)
        if not is_busy(trial.testbed):
            trial.miss(f"Redis was busy no longer when {name} was answered")
        elif outcome != "unavailable":
            trial.wrong.append(f"{name} was answered {outcome}, not unavailable, by a busy Redis")


def run_script(testbed: Testbed, script: str) -> threading.Thread:
    """Run an endless script in a thread, which ends with it."""

    def run() -> None:
        with suppress(redis.RedisError):  # SCRIPT KILL ends it with an error
            testbed.ask(testbed.main, "EVAL", script, 1, "endless", timeout=30)

    script_runs = threading.Thread(target=run, daemon=True)
    script_runs.start()
    return script_runs


def is_busy(testbed: Testbed) -> bool:
    """Whether Redis answers BUSY."""
    try:
        testbed.ask(testbed.main, "GET", "x", timeout=1)
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    except redis.RedisError:
        return False
    return False
