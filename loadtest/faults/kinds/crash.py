"""`crash`: every process of the holder's node is killed.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

from functools import partial

from loadtest.faults import measure
from loadtest.faults.node_end import NodeEndFault
from loadtest.faults.testbed import wait_for
from loadtest.faults.trial import Trial

#: The point at which a rival has read that the lock has expired, before it takes the lock over.
TAKEOVER_POINT = "setnx-timestamp:before_takeover"
#: How long to wait until a resumed rival has taken the lock over and has read the stock. A rival
#: that does not get the lock reads no stock, so this wait ends by the timeout.
TAKEOVER_TIMEOUT_SECONDS = 0.3


class CrashFault(NodeEndFault):
    """Every process of node A is killed by SIGKILL.

    If only gunicorn's master were killed, its worker would finish the request and release the lock.
    """

    name = "crash"
    title = "SIGKILL of the holder's node"
    measures_recovery = True

    def start_first_buyers(self, trial: Trial) -> None:
        """Start the victim, then two rivals, who wait for its lock until the node is killed.

        The victim is the buyer whom the fault hits. Rivals are buyers on the other node.
        Under some strategies a buyer that waits for the lock can take it over when it has expired.
        Then run_buyers() starts the rivals instead.
        """
        super().start_first_buyers(trial)
        if not trial.strategy["takes_over"]:
            _start_two_rivals(trial, stop_at="")

    def fire(self) -> None:
        """Kill node A. heal() will restart it."""
        self.undo_on_heal.callback(self.testbed.restart, self.node)
        self.process_count = len(self.testbed.list_pids(self.node))
        self.testbed.nodes[self.node].kill()

    def prove(self) -> str:
        """Prove that every process of the node has ended, including each victim's process.

        The pid of a victim's process is taken from the recorded events: the list of the node's pids
        may lack it.
        """
        self.require_no_process_left(seconds=3.0)
        for trial in self.trials:
            pid = trial.victim_pid
            if not pid or measure.read_process_state(pid) not in measure.ENDED_STATES:
                trial.mark_inconclusive("the victim's process may still run")
            trial.expect_first_outcome("unknown", timeout_seconds=5)
        return (
            f"the {self.process_count} processes of node {self.node_name} are gone, its victims' "
            "connections were cut"
        )

    def run_buyers(self, trial: Trial) -> None:
        """Wait until a rival has bought, or until the rivals' timeout.

        Under some strategies a buyer that waits for the lock can take it over when it has expired.
        Then two rivals are started here. Both read that the lock has expired. Then the first rival
        takes the lock over and stops, and the second rival tries the same. After that both buy.
        """
        rivals = trial.rivals
        has_stopped_at = self.testbed.has_stopped_at
        if not trial.strategy["takes_over"]:
            wait_for(lambda: any(rival.sold_at for rival in rivals), self.rival_timeout_seconds)
            return
        # Each rival computes the lock's new expiry time before it stops, and writes it after that.
        # So the rivals are started only after the crash: if they were stopped for longer than a
        # ttl, they would write an expiry time that has already passed.
        _start_two_rivals(trial, stop_at=f"{TAKEOVER_POINT},after_read")
        self.require_soon(
            lambda: all(has_stopped_at(rival, TAKEOVER_POINT) for rival in rivals),
            f"{trial.strategy_name}: not every rival has read that the lock has expired",
            self.rival_timeout_seconds,
        )
        for rival in rivals:
            self.testbed.resume(rival, TAKEOVER_POINT)
            has_read_stock = partial(has_stopped_at, rival, "after_read")
            wait_for(has_read_stock, TAKEOVER_TIMEOUT_SECONDS)
        trial.resume_rivals()


def _start_two_rivals(trial: Trial, *, stop_at: str) -> None:
    """Start two rivals without waiting for them.

    stop_at  the points of the purchase at which the rivals stop, comma-separated; empty: nowhere
    """
    for name in ("rival-1", "rival-2"):
        trial.start_rival(name, timeout_seconds=0, stop_at=stop_at)
