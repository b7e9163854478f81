"""The base class of the faults, with the vocabulary of `make faults`.

    trial       one strategy under one fault, with its own sale
    victim      the buyer whom the fault hits; its purchase is stopped at a point
                (shop/sale/points.py) until it is resumed
    rival       a buyer who tries to buy while the victim is stopped
    firing      the moment at which the fault is made to happen

runner.py calls the steps of a fault in this sequence:

    arm         start the servers and proxies that the fault needs
    start_first_buyers
                start a victim in each trial, and wait until its purchase stops at a point
    fire        make the fault happen
    prove       observe that the fault happened
    run_buyers  start rivals in each trial; then resume the victim, and after it the rivals
    act_while_buyers_run
                change or measure the servers in the runner's own thread, while `run_buyers` runs in
                other threads
    heal        undo the fault; then the remaining buyers buy, and the sales are judged
    clean_up    stop the servers and proxies that the fault needed

This sequence exposes a broken lock: if a rival gets the lock while the victim has it, both have
read the same stock, and both write, first the victim and then the rival.

loadtest/tests/weakened_faults.py tests the proofs: it replaces parts of the faults so that they
only appear to happen. The proof must notice this, so that every trial is inconclusive and none gets
its expected verdict.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import psycopg
import redis

from loadtest.expected import VICTIM_POINTS
from loadtest.faults import measure
from loadtest.faults.testbed import RIVALS_NODE, TTL_SECONDS, VICTIMS_NODE, Testbed, wait_for
from loadtest.faults.trial import NotFired, Trial
from loadtest.stack.client import StrategyFacts

#: Upper bound, in multiples of the ttl, on how long a dead holder blocks other buyers: its lock
#: expires after one ttl, and the rest is for slow machines. It equals the judge's
#: DEADLOCK_AFTER_TTLS.
LONGEST_RECOVERY_IN_TTLS = 3


class Fault(ABC):
    """One fault, fired once for all the strategies with an expected verdict under it.

    name            the fault's name in loadtest/expected.py; a name with an @ is a variant of the
                    fault before the @
    title           a short description of the action, for tables
    victim_stop_point
                    the point of the purchase at which start_first_buyers() stops the victim. For
                    some strategies VICTIM_POINTS in loadtest/expected.py has another one. If it is
                    empty, there is no victim; a first buyer opens connections and loads scripts
    rival_timeout_seconds
                    how long to wait for a rival to get the lock while the victim is stopped
    ttl             seconds after which a lock expires if its holder does not renew it. It is longer
                    than TTL_SECONDS if no lock may expire before the fault takes effect
    takes_the_lock  whether the fault takes even a sound lock away from its holder. Then two buyers
                    may both act as the holder, and the fence refuses the write of the first one
    hits_any_buyer  True if the fault may hit any buyer, False if it hits the victim only
    has_two_lock_servers
                    whether two servers grant the lock independently of each other
    loses_promised_orders
                    whether Redis loses its data, and with it the promised orders: orders that the
                    shop has accepted and not yet written to the database. Then the order consumers,
                    which write them, are killed before the victims buy, and started again after
                    the rivals have bought. Otherwise chance would decide which orders are lost
    measures_recovery
                    whether to measure the time from firing to the next sale. Then the victim sends
                    one request only, so that the next sale goes to another buyer
    node            the index of the node that the fault hits
    fired_at        the time of firing by the monotonic clock, from which the recovery is measured
    trials          a trial for each available strategy with an expected verdict under the fault
    undo_on_heal    callbacks that undo the fault; heal() calls them, the last one first
    cleanup         callbacks that stop and close what was started for the fault
    unique_id       makes the names of products and the keys of attempts unique
    """

    name: str
    title: str
    victim_stop_point = "after_read"
    # One ttl, plus the time that a waiting rival may need to notice that the lock has expired.
    rival_timeout_seconds = TTL_SECONDS + 0.7
    ttl = TTL_SECONDS
    takes_the_lock = False
    hits_any_buyer = False
    has_two_lock_servers = False
    measures_recovery = False
    loses_promised_orders = False
    node = VICTIMS_NODE
    fired_at = 0.0

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed
        self.trials: list[Trial] = []
        self.undo_on_heal = ExitStack()  # heal() closes it
        self.cleanup = ExitStack()  # clean_up() closes it
        self.unique_id = secrets.token_hex(4)  # part of each product's name and each attempt's key

    def add_trial(self, strategy: StrategyFacts) -> None:
        """Add a trial: a sale under this strategy, during which the fault is injected."""
        # Under some strategies the victim stops at another point than under the rest.
        point_by_fault = VICTIM_POINTS.get(strategy["name"], {})
        trial = Trial(
            self.testbed,
            strategy,
            self.unique_id,
            fault=self.name,
            victim_stop_point=point_by_fault.get(self.name, self.victim_stop_point),
            ttl=self.ttl,
        )
        self.trials.append(trial)

    def arm(self) -> None:  # noqa: B027 most faults need no preparation
        """Prepare the fault. The sales are open, and no buyer has sent a request yet."""

    def start_first_buyers(self, trial: Trial) -> None:
        """Start the victim on node A, and wait until its purchase stops at `victim_stop_point`.

        The victim is the buyer whom the fault hits. A fault without a `victim_stop_point` has no
        victim here. A first buyer buys instead, and NotFired is raised if it cannot.
        """
        if self.victim_stop_point:
            # If the time to the next sale is measured, the unit of that sale must go to another
            # buyer. So the victim does not send its request again.
            trial.start_victim(retries=not self.measures_recovery)
        else:
            self.require_first_sale(trial)

    def fire(self) -> None:  # noqa: B027 some faults only need time, or a request of a buyer
        """Make the fault happen. Meanwhile the purchase of every victim is stopped."""

    @abstractmethod
    def prove(self) -> str:
        """Return the evidence that the fault happened, in one sentence without pids and ports.

        Raises NotFired if there is no evidence.
        """

    def run_buyers(self, trial: Trial) -> None:
        """Start the rivals of a trial (one strategy under the fault), then resume all its buyers.

        Rivals are buyers who try to buy while the victim, the buyer hit by the fault, is stopped.
        The method runs for all trials at the same time, each in its own thread.
        """
        self.start_rivals(trial)
        self.resume(trial)

    def start_rivals(self, trial: Trial) -> None:
        """Start a rival on node B, and wait until it has read the stock or is answered.

        A rival is a buyer who tries to buy while the victim of the fault is stopped. The rival's
        purchase is stopped, too, after it has read the stock. The wait ends after
        `rival_timeout_seconds` at the latest. Some faults override this method, and start further
        buyers.
        """
        trial.start_rival("rival-1", timeout_seconds=self.rival_timeout_seconds)

    def resume(self, trial: Trial) -> None:
        """Resume the victim, then the rivals, so that a rival with an outdated read writes last."""
        trial.resume_victim()
        trial.resume_rivals()

    def act_while_buyers_run(self) -> None:  # noqa: B027
        """Change or measure the servers while `run_buyers` runs in other threads.

        `run_buyers` may wait for such a change: `pause`, for example, resumes its node here.
        """

    def heal(self) -> None:
        """Undo the fault. This method is called even if the fault did not fire."""
        self.undo_on_heal.close()

    def clean_up(self) -> None:
        """Stop the servers and proxies of the fault.

        This method is called after the sales were judged, even if the fault did not fire.
        """
        self.cleanup.close()

    def get_longest_recovery_seconds(self, strategy: StrategyFacts) -> float:
        """Return the seconds after the start of the fault within which a buyer must buy.

        The bound is checked only if the fault measures recovery. Some faults override this method,
        and allow more time under certain strategies.
        """
        return LONGEST_RECOVERY_IN_TTLS * self.ttl

    def is_in_effect(self) -> bool:
        """Return whether the fault is still in effect; True for a fault without a check."""
        return True

    def describe_observations(self) -> str:
        """Return further evidence, observed while the buyers bought; empty if there is none."""
        return ""

    def describe_stops_and_ttls(self) -> str:
        """Return, as text, how long the victims were stopped and the measured ttl of their locks.

        Empty if neither was measured.
        """
        stop_times = [trial.stopped_seconds for trial in self.trials if trial.stopped_seconds]
        lock_ttls = [trial.measured_ttl for trial in self.trials if trial.measured_ttl is not None]
        clauses = []
        if stop_times:
            clauses.append(f"were stopped for {format_range(stop_times)}")
        if lock_ttls:
            clauses.append(f"had locks with a measured ttl of {format_range(lock_ttls)}")
        if not clauses:
            return ""
        return f"the victims {' and '.join(clauses)}"

    @property
    def node_name(self) -> str:
        """The name of the node that the fault hits: A. In `make chaos` it may be B, by chance."""
        return self.testbed.nodes[self.node].name

    # --- helpers of the faults --------------------------------------------------------------------

    def require(self, condition: object, message: str) -> None:
        """Raise NotFired with `message` unless `condition` is true."""
        if not condition:
            raise NotFired(f"{self.name}: {message}")

    def require_soon(
        self, condition: Callable[[], object], message: str, seconds: float = 10.0
    ) -> None:
        """Raise NotFired with `message` unless the condition holds within `seconds`."""
        self.require(wait_for(condition, seconds), message)

    def require_first_sale(self, trial: Trial, node: int = RIVALS_NODE) -> None:
        """Let a buyer buy before the fault, so that connections are open and scripts are loaded.

        Raises NotFired if the buyer cannot buy.
        """
        outcome = trial.send_one_request(name="early", node=node)
        self.require(
            outcome == "sold", f"{trial.strategy_name}: the first buyer was answered {outcome}"
        )

    def expect_outcome(
        self, trial: Trial, name: str, *outcomes: str, node: int = RIVALS_NODE
    ) -> None:
        """Let a new buyer send one request during the fault, and check the outcome.

        An outcome that is not in `outcomes` is recorded as a problem of the trial. The trial is
        inconclusive if the fault has ended before the buyer is answered.

        name  the buyer's name
        node  the index of the node to which the buyer sends the request
        """
        outcome = trial.send_one_request(name, node)
        if outcome not in outcomes:
            trial.problems.append(f"{name} was answered {outcome}, not {' or '.join(outcomes)}")
        if not self.is_in_effect():
            trial.mark_inconclusive(f"the fault was over before {name} was answered")

    def run_redis_command(self, *command: Any, timeout: float = 5.0) -> Any:
        """Send a command to the main Redis, bypassing all proxies, and return the reply.

        Raises redis.RedisError.
        """
        return measure.run_command(self.testbed.main_redis, *command, timeout=timeout)

    def try_redis_command(self, *command: Any, timeout: float = 5.0) -> str:
        """Send a command to the main Redis, and return the text of its error.

        The text is empty if the command succeeds.
        """
        try:
            self.run_redis_command(*command, timeout=timeout)
        except redis.RedisError as error:
            return str(error)
        return ""

    def connect_through_proxy(self) -> psycopg.Connection[Any]:
        """Return a connection to PostgreSQL through node A's proxy; clean_up() closes it."""
        url = self.testbed.database_url
        connection = psycopg.connect(url, host=self.testbed.database_proxy.address, autocommit=True)
        self.cleanup.callback(connection.close)
        return connection


def format_range(seconds: Sequence[float]) -> str:
    """Return the shortest and the longest of these times as text, both 0 if there are none."""
    return f"{min(seconds, default=0):.2f} to {max(seconds, default=0):.2f} s"
