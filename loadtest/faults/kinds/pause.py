"""`pause`, `pause@acquired`: the holder's node is stopped for longer than the ttl."""

import signal
import threading
import time
from collections.abc import Collection

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import TTL
from loadtest.faults.trial import Trial

#: Seconds. Longer than the ttl and than ZooKeeper's session, which ends on a tick of half a second;
#: shorter than PostgreSQL's timeout for an idle transaction and gunicorn's for a worker.
PAUSE_SECONDS = TTL + 1.0
#: How long a trial waits for the end of the pause.
RESUME_TIMEOUT_SECONDS = 30.0


class PauseFault(Fault):
    """SIGSTOP for node A, and SIGCONT after the ttl.

    Meanwhile nothing in the node can renew a lock or notice its loss. For ways in which this fault
    can appear to happen without doing so, see loadtest/tests/weakened_faults.py.
    """

    name = "pause"
    title = "SIGSTOP of the holder's node past the ttl"
    grace = PAUSE_SECONDS
    takes_the_lock = True

    def fire(self) -> None:
        self.may_resume = threading.Event()  # set when node A runs again
        record = self.testbed.record_fault
        self.healing.callback(record, self.name, "ok", "heal", "SIGCONT of node A")
        self.healing.callback(self.testbed.signal, self.node, signal.SIGCONT)
        self.testbed.signal(self.node, signal.SIGSTOP)
        self.stopped_at = time.monotonic()

    def prove(self) -> str:
        """Check the node's present pids and those that the victims recorded.

        The pids that were signalled would prove nothing: a process may have been missed.
        """
        pids = set(self.testbed.pids(self.node))
        pids |= {trial.victim_pid for trial in self.trials if not trial.inconclusive_reason}
        runs = "a process of node A still runs"
        self.require_soon(lambda: self._are_stopped(pids), runs, 2.0)
        self.switches_by_pid = measure.count_context_switches(pids)
        return f"the {len(pids)} processes of node A are in state T"

    def _are_stopped(self, pids: Collection[int]) -> bool:
        return set(map(measure.state_of, pids)) == {psutil.STATUS_STOPPED}

    def act(self, trial: Trial) -> None:
        self.send_rivals(trial)
        # act_on_servers, which runs in parallel, ends the pause.
        self.may_resume.wait(RESUME_TIMEOUT_SECONDS)
        self.resume(trial)

    def act_on_servers(self) -> None:
        try:
            time.sleep(PAUSE_SECONDS)
            stopped_seconds = time.monotonic() - self.stopped_at
            was_stopped_throughout = self.is_in_effect()
            for trial in self.trials:
                trial.record_stop(stopped_seconds)
                if not was_stopped_throughout:
                    trial.mark_inconclusive("node A was not stopped all the time")
            self.heal()
        finally:
            self.may_resume.set()

    def is_in_effect(self) -> bool:
        """Return whether the node was stopped all the time.

        A process that ran for a moment in between has another number of context switches.
        """
        return (
            self._are_stopped(self.switches_by_pid)
            and measure.count_context_switches(self.switches_by_pid) == self.switches_by_pid
        )


class PauseAcquiredFault(PauseFault):
    """The same pause between acquiring the lock and claiming the fence.

    Only there the fence itself is tested: after the claim the row lock of the victim's transaction
    keeps rivals out. If the fence works, the victim is answered `lost`. The locks without a fence
    show that the pause was long enough to break a lock.
    """

    name = "pause@acquired"
    title = "the same before the fence is claimed"
    point = "acquired"

    def resume(self, trial: Trial) -> None:
        super().resume(trial)
        if trial.expected == "exact":
            trial.expect_first_answer("lost")
