"""partition, quorum: some nodes are cut off from some Redis servers, and live."""

from __future__ import annotations

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import until
from loadtest.faults.trial import Trial
from servers.proxy.proxy import Proxy


class Partition(Fault):
    """A black hole between node A and Redis: no byte passes, no connection is closed. The holder
    still reaches the database, so it goes on; its renewals and its release do not arrive."""

    name = "partition"
    title = "a black hole between the holder's node and Redis"
    takes_the_lock = True
    before: int | None = None
    dropped = 0

    def fire(self) -> None:
        self.testbed.redis[self.node].black_hole()

    def prove(self) -> str:
        proxy, other = self.testbed.redis[self.node], self.testbed.redis[1 - self.node]
        self.require(not measure.run_id(proxy), "Redis answers through node A's proxy")
        self.require(measure.run_id(other), "Redis does not answer node B either")
        self.before = proxy.dropped  # less the PING of this proof
        return "Redis answers a PING by the way of node B, and none by that of node A"

    def meet(self, trial: Trial) -> None:
        """Node A sells nothing without the lock; node B sells when the lock has expired."""
        cut_off = trial.send(trial.buyer("cut-off"), self.node)
        super().meet(trial)
        until(lambda: bool(cut_off.first), 10)
        if cut_off.first not in trial.without_reply:
            trial.wrong.append(f"a buyer of node A was answered {cut_off.first} without Redis")

    def heal(self) -> None:
        proxy = self.testbed.redis[self.node]
        self.dropped = require_dropped(self, proxy, self.before)
        proxy.pass_on()

    def observed(self) -> str:
        return f"{self.dropped} bytes of node A never arrived; the locks had {self.measured_ttl()}"


def require_dropped(fault: Fault, proxy: Proxy, before: int | None) -> int:
    """How many bytes have fallen into this black hole since there were `before`; None: it was not
    proved. Where none has, no trial shows anything."""
    dropped = 0 if before is None else proxy.dropped - before
    for trial in fault.trials if before is not None and not dropped else ():
        trial.miss("node A sent nothing into the black hole")
    return dropped


class Quorum(Fault):
    """With two of Redlock's five servers cut off the shop sells, with three it refuses. `restart`
    shows that a server which comes back empty leads to two holders."""

    name = "quorum"
    title = "2 of 5 servers are cut off, then 3"

    def enter(self, trial: Trial) -> None:
        """No victim."""

    def fire(self) -> None:
        for proxy in self.testbed.redlock[3:]:
            proxy.black_hole()

    def prove(self) -> str:
        self._require_answering(3)
        return "2 of 5 servers do not answer, then 3"

    def act(self, trial: Trial) -> None:
        for number in (1, 2, 3):
            trial.must_be_answered(f"two-gone-{number}", "sold")
        self.testbed.redlock[2].black_hole()
        for number in (1, 2, 3):
            trial.must_be_answered(f"three-gone-{number}", "unavailable")
        self._require_answering(2)

    def _require_answering(self, wanted: int) -> None:
        answering = sum(bool(measure.run_id(proxy)) for proxy in self.testbed.redlock)
        self.require(answering == wanted, f"{answering} of 5 servers answer, not {wanted}")

    def heal(self) -> None:
        for proxy in self.testbed.redlock:
            proxy.pass_on()
