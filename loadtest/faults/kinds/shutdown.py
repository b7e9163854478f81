"""`shutdown`, `shutdown@short`: SIGTERM for the holder's node, with and without time to finish.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import time

from loadtest.faults.node_end import NODE_END_TIMEOUT_SECONDS, NodeEndFault
from loadtest.faults.testbed import ANSWER_TIMEOUT_SECONDS, VICTIMS_NODE, wait_for
from loadtest.faults.trial import Trial
from loadtest.stack.client import Shop


class ShutdownFault(NodeEndFault):
    """SIGTERM with a graceful timeout longer than the purchases: node A must answer every buyer.

    When node A gets the SIGTERM, a second buyer on this node is waiting for the victim's lock.
    """

    name = "shutdown"
    title = "SIGTERM, and time enough to finish"
    rival_timeout_seconds = 0.3
    ttl = 5.0  # long, so that no lock expires: this fault checks only the answers

    def start_first_buyers(self, trial: Trial) -> None:
        """Start the victim on node A, then a second buyer there, who waits for the victim's lock.

        Return when node A has the second buyer's request.
        """
        super().start_first_buyers(trial)
        # A purchase creates a file when it reaches its `stop_at`. Here this shows that node A has
        # the request. The buyer is resumed in advance, so the purchase does not stop.
        buyer = trial.add_buyer("second-buyer", stop_at="arrives")
        trial.waiting_buyer = buyer
        self.testbed.resume(buyer)
        trial.start_buyer(buyer, VICTIMS_NODE)
        message = f"{trial.strategy_name}: the second buyer's request did not arrive"
        self.require_soon(lambda: self.testbed.has_stopped_at(buyer), message)

    def prove(self) -> str:
        """Prove that node A is shutting down and still runs, and that the victims are stopped."""
        shop = Shop(self.testbed.nodes[self.node].url, timeout=0.2)
        self.require_soon(lambda: not shop.is_healthy(), "node A still accepts new buyers")
        self.require(self.process.poll() is None, "node A has ended already")
        for trial in self.trials:
            if trial.victim.first_outcome or not self.testbed.has_stopped_at(trial.victim):
                trial.mark_inconclusive(
                    f"the victim was not stopped at {trial.victim_stop_point} when node A got "
                    "its SIGTERM"
                )
        return "node A accepts no new buyers, has not ended, and its victims' purchases are stopped"

    def resume(self, trial: Trial) -> None:
        """Resume the buyers, and check that node A answers the victim and the second buyer."""
        super().resume(trial)
        first_outcome = trial.wait_for_first_outcome(ANSWER_TIMEOUT_SECONDS)
        if first_outcome != "sold":
            trial.problems.append(f"the victim was answered {first_outcome}, not sold")
        # If the victim does not release its lock soon, the second buyer is answered `busy`. That is
        # an answer, too. The second buyer sends its request again after heal().
        wait_for(lambda: trial.waiting_buyer.first_outcome, ANSWER_TIMEOUT_SECONDS)
        if trial.waiting_buyer.first_outcome in {"", "unknown"}:
            trial.problems.append("the buyer who waited for the victim's lock got no answer")

    def act_while_buyers_run(self) -> None:
        """Wait until node A has ended, and check that it ended without an error."""
        wait_for(
            lambda: self.process.poll() is not None,
            NODE_END_TIMEOUT_SECONDS + self.rival_timeout_seconds,
        )
        self.require(self.process.poll() == 0, f"node A ended with {self.process.poll()}, not 0")
        self.require_no_process_left()


class ShutdownShortFault(NodeEndFault):
    """SIGTERM with a graceful timeout shorter than the purchases: node A does not answer them."""

    name = "shutdown@short"
    title = "SIGTERM, and too little time"
    measures_recovery = True

    def arm(self) -> None:
        """Restart node A with a short graceful timeout. heal() restarts it without that setting."""
        self.testbed.restart(self.node, WEB_GRACEFUL_TIMEOUT="1")

    def start_first_buyers(self, trial: Trial) -> None:
        """Start the victim, then a rival, who waits for the lock and whose purchase never stops."""
        super().start_first_buyers(trial)
        trial.start_rival("rival-1", timeout_seconds=0, stop_at="")

    def prove(self) -> str:
        """Prove that the node has ended and that its victims were not answered."""
        self.require_soon(
            lambda: self.process.poll() is not None, f"node {self.node_name} still runs"
        )
        self.require_no_process_left()
        # The node has ended only now, and its locks may stay for another ttl. So the time to the
        # next sale is measured from now on.
        self.fired_at = time.monotonic()
        for trial in self.trials:
            trial.expect_first_outcome("unknown", timeout_seconds=5)
        exit_code = self.process.returncode
        return f"node {self.node_name} ended with code {exit_code}, its victims unanswered"

    def run_buyers(self, trial: Trial) -> None:
        """Do nothing: the rival buys as soon as it gets the lock."""
