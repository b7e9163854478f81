"""Base class of the faults in which node A ends.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

from loadtest.faults.fault import Fault

#: How long to wait for the node to end after it has answered every buyer.
NODE_END_TIMEOUT_SECONDS = 10.0


class NodeEndFault(Fault):
    """Node A ends, by SIGTERM unless a subclass overrides fire(). heal() restarts the node.

    process  gunicorn's master process of the node; not set by `crash`, which overrides fire()
    """

    def fire(self) -> None:
        """Send SIGTERM to node A. heal() will restart it."""
        self.undo_on_heal.callback(self.testbed.restart, self.node)
        self.process = self.testbed.get_gunicorn_master(self.node)
        self.testbed.nodes[self.node].terminate()

    def require_no_process_left(self, seconds: float = NODE_END_TIMEOUT_SECONDS) -> None:
        """Raise NotFired if a process of the node is left after `seconds`.

        Each check reads the pids again, so it also finds a worker that did not get the signal.
        """
        message = f"a process of node {self.node_name} is left"
        self.require_soon(lambda: not self.testbed.list_pids(self.node), message, seconds)
