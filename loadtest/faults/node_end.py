"""Base of the faults that end node A.

Node A serves the victims, node B their rivals; fault.py explains these words and the steps.
"""

from loadtest.faults.fault import Fault

#: How long to wait for the node to end after it has answered every buyer.
NODE_END_TIMEOUT_SECONDS = 10.0


class NodeEndFault(Fault):
    """Node A ends, by SIGTERM unless fire() is overridden. heal() restarts it.

    process  gunicorn's master of the node, which fire() ends; not set under `crash`
    """

    def fire(self) -> None:
        """Send SIGTERM to node A. heal() will restart it."""
        self.healing.callback(self.testbed.restart, self.node)
        self.process = self.testbed.gunicorn_master_of(self.node)
        self.testbed.nodes[self.node].terminate()

    def require_no_process_left(self, seconds: float = NODE_END_TIMEOUT_SECONDS) -> None:
        """Raise NotFired if a process of the node is left after `seconds`.

        The pids are read anew at each check, so a worker that did not get the signal counts, too.
        """
        message = f"a process of node {self.node_name} is left"
        self.require_soon(lambda: not self.testbed.pids(self.node), message, seconds)
