"""`partition`: a black hole between the holder's node and Redis.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import ANSWER_TIMEOUT_SECONDS, wait_for
from loadtest.faults.trial import Trial
from servers.proxy.proxy import Proxy


class PartitionFault(Fault):
    """A black hole between node A and Redis: the proxy drops all bytes and closes no connection.

    The victim still reaches the database, so it continues. Its renewals and its release do not
    reach Redis.

    dropped_bytes_at_proof  number of bytes that the proxy had dropped when prove() ended
    """

    name = "partition"
    title = "a black hole between the holder's node and Redis"
    takes_the_lock = True
    dropped_bytes_at_proof = 0

    @property
    def proxy(self) -> Proxy:
        """The proxy that becomes the black hole."""
        return self.testbed.redis_proxies[self.node]

    def fire(self) -> None:
        """Make the proxy drop all bytes."""
        self.undo_on_heal.callback(self.proxy.pass_on)
        self.proxy.black_hole()

    def prove(self) -> str:
        """Prove that Redis answers through the other node's proxy only."""
        other_node = 1 - self.node
        other_name = self.testbed.nodes[other_node].name
        other_proxy = self.testbed.redis_proxies[other_node]
        message = f"Redis answers through node {self.node_name}'s proxy"
        self.require(not measure.read_redis_run_id(self.proxy), message)
        message = f"Redis does not answer through node {other_name}'s proxy either"
        self.require(measure.read_redis_run_id(other_proxy), message)
        self.dropped_bytes_at_proof = self.proxy.dropped_bytes
        return (
            f"Redis answers through node {other_name}'s proxy, and not through "
            f"node {self.node_name}'s"
        )

    def start_rivals(self, trial: Trial) -> None:
        """Start a rival on node B, and a further buyer on node A.

        Node A is cut off from Redis, so it must refuse this buyer.
        """
        cut_off_buyer = trial.start_buyer(trial.add_buyer("cut-off"), self.node)
        super().start_rivals(trial)
        wait_for(lambda: cut_off_buyer.first_outcome, ANSWER_TIMEOUT_SECONDS)
        if cut_off_buyer.first_outcome not in trial.outcomes_without_redis:
            trial.problems.append(
                f"a buyer on node A was answered {cut_off_buyer.first_outcome}, although the node "
                "does not reach Redis"
            )

    def heal(self) -> None:
        """Undo the fault, and check that it had an effect.

        If node A has sent nothing since prove(), all trials are inconclusive.
        """
        if self.proxy.dropped_bytes == self.dropped_bytes_at_proof:
            for trial in self.trials:
                trial.mark_inconclusive("node A sent nothing into the black hole")
        super().heal()

    def describe_observations(self) -> str:
        """Return how many bytes the proxy has dropped since prove()."""
        lost_bytes = self.proxy.dropped_bytes - self.dropped_bytes_at_proof
        return f"{lost_bytes} bytes of node A never arrived"
