"""`busy`: an endless script keeps Redis busy.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import threading
import time
from functools import partial

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import ANSWER_TIMEOUT_SECONDS, wait_for
from loadtest.faults.trial import Trial

ENDLESS_SCRIPT = "while true do end"
#: An endless script that writes a key first. Redis refuses to end such a script by SCRIPT KILL.
WRITING_ENDLESS_SCRIPT = "redis.call('set', KEYS[1], 1) while true do end"
#: The command that ends the running script.
KILL_SCRIPT = ("SCRIPT", "KILL")
#: Redis answers BUSY once a script has run for this long.
BUSY_THRESHOLD_MS = "50"
#: The default of this setting in Redis (busy-reply-threshold).
DEFAULT_THRESHOLD_MS = "5000"
#: Minimum time for which the second script runs. It is less than a ttl, so that no victim's lock
#: expires.
BUSY_SECONDS = 0.4


class BusyFault(Fault):
    """An endless script keeps Redis busy, before and while the victims hold their locks.

    The first script runs before the victims start. It writes a key, so SCRIPT KILL answers
    UNKILLABLE, and only SHUTDOWN NOSAVE ends it. The second script runs while the victims hold
    their locks. It writes nothing, so SCRIPT KILL ends it.
    """

    name = "busy"
    title = "an endless script; SCRIPT KILL, SHUTDOWN NOSAVE"

    def arm(self) -> None:
        """Run the first script, and check that a buyer of each trial is refused meanwhile.

        The script has written a key, so Redis refuses to end it by SCRIPT KILL. End it by SHUTDOWN
        NOSAVE, and start Redis again.
        """
        self.trials_with_answered_rival: list[Trial] = []  # run_buyers() adds them
        self._start_script(WRITING_ENDLESS_SCRIPT)
        for trial in self.trials:
            self.expect_outcome(trial, "buyer-first-script", "unavailable")
        self.kill_reply = self.try_redis_command(*KILL_SCRIPT)
        self.require("UNKILLABLE" in self.kill_reply, f"SCRIPT KILL answered {self.kill_reply}")
        # Redis ends without an answer, so even a successful SHUTDOWN raises an error in the client.
        self.try_redis_command("SHUTDOWN", "NOSAVE")
        self.script_thread.join(timeout=5)
        self.require(not self.script_thread.is_alive(), "SHUTDOWN NOSAVE did not end the script")
        self.testbed.restart_empty(self.testbed.main_redis)

    def fire(self) -> None:
        """Start the second script. act_while_buyers_run() ends it."""
        self._start_script(ENDLESS_SCRIPT)

    def prove(self) -> str:
        """Prove that Redis still answers BUSY."""
        self.require(self.is_in_effect(), "Redis is not busy any more")
        return "Redis answers BUSY, both before and after the buyers' requests"

    def describe_observations(self) -> str:
        """Return how Redis refused to end the first script."""
        return f"Redis answered the SCRIPT KILL of the first script: {self.kill_reply}"

    def run_buyers(self, trial: Trial) -> None:
        """Resume the victim, and check that a rival is refused.

        Redis is still busy, so it also refuses the victim's release.
        """
        trial.resume_victim()
        self.expect_outcome(trial, "rival-1", "unavailable")
        self.trials_with_answered_rival.append(trial)

    def act_while_buyers_run(self) -> None:
        """Wait until every rival is answered, and end the second script by SCRIPT KILL."""
        time.sleep(BUSY_SECONDS)
        wait_for(
            lambda: len(self.trials_with_answered_rival) == len(self.trials), ANSWER_TIMEOUT_SECONDS
        )
        error = self.try_redis_command(*KILL_SCRIPT)
        self.require(not error, f"the script ended early: SCRIPT KILL answered {error}")
        self.script_thread.join(timeout=5)

    def is_in_effect(self) -> bool:
        """Return whether Redis answers BUSY."""
        return "BUSY" in self.try_redis_command("GET", "x", timeout=1)

    def _start_script(self, script: str) -> None:
        """Run a script on Redis in a thread, and wait until Redis is busy.

        The thread ends when the script ends.
        """
        # heal() calls the two callbacks in reverse order: it ends the script, and then restores the
        # threshold.
        self.undo_on_heal.callback(
            self.run_redis_command, "CONFIG", "SET", "busy-reply-threshold", DEFAULT_THRESHOLD_MS
        )
        self.undo_on_heal.callback(self.try_redis_command, *KILL_SCRIPT)
        self.run_redis_command("CONFIG", "SET", "busy-reply-threshold", BUSY_THRESHOLD_MS)
        run_script = partial(self.try_redis_command, "EVAL", script, 1, "endless", timeout=30)
        self.script_thread = threading.Thread(target=run_script, daemon=True)
        self.script_thread.start()
        self.require_soon(self.is_in_effect, "Redis is not busy", seconds=5.0)
