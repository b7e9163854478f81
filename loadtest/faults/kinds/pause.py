"""`pause`, `pause@acquired`: the holder's node is stopped for longer than the ttl.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import signal
import threading
import time
from collections.abc import Collection

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import TTL_SECONDS
from loadtest.faults.trial import Trial

#: The length of the pause. It is longer than the ttl and longer than the timeout of a ZooKeeper
#: session, which ZooKeeper checks every half second. It is shorter than PostgreSQL's timeout for an
#: idle transaction and gunicorn's timeout for a worker.
PAUSE_SECONDS = TTL_SECONDS + 1.0
#: How long a trial waits, at most, for the end of the pause.
PAUSE_END_TIMEOUT_SECONDS = 30.0


class PauseFault(Fault):
    """Node A is stopped by SIGSTOP, and continued by SIGCONT after the ttl.

    While the node is stopped, none of its threads can renew a lock or notice the loss of a lock.
    """

    name = "pause"
    title = "SIGSTOP of the holder's node past the ttl"
    rival_timeout_seconds = PAUSE_SECONDS
    takes_the_lock = True

    def fire(self) -> None:
        """Stop the node. act_while_buyers_run() continues it."""
        self.pause_ended = threading.Event()  # set when node A runs again, for run_buyers()
        # heal() calls the two callbacks in reverse order: it sends SIGCONT, and then records that.
        message = f"SIGCONT of node {self.node_name}"
        self.undo_on_heal.callback(self.testbed.record_fault, self.name, "ok", "heal", message)
        self.undo_on_heal.callback(self.testbed.send_signal, self.node, signal.SIGCONT)
        self.testbed.send_signal(self.node, signal.SIGSTOP)
        self.stopped_at = time.monotonic()

    def prove(self) -> str:
        """Prove that every process of the node is stopped, including each victim's process.

        The pid of a victim's process is taken from the recorded events: the list of the node's pids
        may lack it.
        """
        pids = set(self.testbed.list_pids(self.node))
        # A victim without a recorded pid has the pid 0. No process with this pid is ever stopped,
        # so the check below fails.
        pids |= {trial.victim_pid for trial in self.trials if not trial.inconclusive_reason}
        message = f"a process of node {self.node_name} still runs"
        self.require_soon(lambda: self._are_stopped(pids), message, seconds=2.0)
        self.switches_by_pid = measure.count_context_switches(pids)
        return f"the {len(pids)} processes of node {self.node_name} are in state T"

    def _are_stopped(self, pids: Collection[int]) -> bool:
        """Return whether all these processes are stopped; False if there are none."""
        return set(map(measure.read_process_state, pids)) == {psutil.STATUS_STOPPED}

    def run_buyers(self, trial: Trial) -> None:
        """Start a rival while node A is stopped. Resume the buyers when the node runs again."""
        self.start_rivals(trial)
        # act_while_buyers_run() sets this event in another thread.
        self.pause_ended.wait(PAUSE_END_TIMEOUT_SECONDS)
        self.resume(trial)

    def act_while_buyers_run(self) -> None:
        """End the pause of the node after PAUSE_SECONDS, and record its length in each trial.

        heal() is called here already, because it continues the node.
        """
        try:
            time.sleep(PAUSE_SECONDS)
            stopped_seconds = time.monotonic() - self.stopped_at
            was_stopped_throughout = self.is_in_effect()
            for trial in self.trials:
                trial.record_stop_duration(stopped_seconds)
                if not was_stopped_throughout:
                    trial.mark_inconclusive("node A ran for a moment during the pause")
            self.heal()
        finally:
            self.pause_ended.set()

    def is_in_effect(self) -> bool:
        """Return whether the node has been stopped without interruption since prove().

        A process that has run in the meantime has more context switches than prove() counted.
        """
        pids = self.switches_by_pid.keys()
        return (
            self._are_stopped(pids) and measure.count_context_switches(pids) == self.switches_by_pid
        )


class PauseAcquiredFault(PauseFault):
    """`pause`, but after the lock is acquired and before the fence is claimed.

    A purchase claims its fence by writing it to the product's row, which fails if the row has a
    higher fence. Only a pause before the claim tests the fence. After the claim, the transaction of
    the victim locks the row, which blocks rivals. If the fence works, the victim is answered
    `lost`. Locks without a fence break, which shows that the pause was long enough.
    """

    name = "pause@acquired"
    title = "the same before the fence is claimed"
    victim_stop_point = "acquired"

    def resume(self, trial: Trial) -> None:
        """Resume the buyers. If the lock is sound, its fence must refuse the victim's write."""
        super().resume(trial)
        if trial.expected == "exact":
            trial.expect_first_outcome("lost")
