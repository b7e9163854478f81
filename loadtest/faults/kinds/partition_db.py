"""`partition-db`: a black hole between the holder's node and PostgreSQL.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import select
import time

from loadtest.faults.fault import format_range
from loadtest.faults.kinds.partition import PartitionFault
from loadtest.faults.testbed import ANSWER_TIMEOUT_SECONDS, TTL_SECONDS
from loadtest.faults.trial import Trial
from loadtest.stack.client import StrategyFacts
from servers.proxy.proxy import Proxy

#: Time after which the shop closes a connection on which PostgreSQL does not answer
#: (shop/ops/postgres.py). Until then the holder waits for PostgreSQL, and its watchdog, a thread of
#: the shop, renews its lock.
REPLY_TIMEOUT_SECONDS = 9.0
#: The `max_hold` of the locks with a fence: the watchdog renews a lock for this time at most. It is
#: less than REPLY_TIMEOUT_SECONDS, so that the lock is lost before the connection is closed.
MAX_HOLD_SECONDS = 2.0
#: Added to REPLY_TIMEOUT_SECONDS and to the longest blocking time, for a slow machine.
SLACK_SECONDS = 3.0
#: A victim must block other buyers for nearly the whole time that its strategy allows. The measured
#: time may be shorter by one ttl and this tolerance.
BLOCKING_TOLERANCE_SECONDS = 0.5


class PartitionDbFault(PartitionFault):
    """A black hole between node A and PostgreSQL.

    The proxy drops all bytes, and closes no connection. So the victims wait for an answer to their
    next statement. They still reach their lock servers, so watchdogs renew their locks, and other
    buyers cannot buy. A lock with a fence has a `max_hold`, and blocks other buyers for at most
    `max_hold` plus a ttl. Every other lock blocks them for at most the reply timeout of the shop's
    connections. The fault measures how long no buyer could buy.
    """

    name = "partition-db"
    title = "a black hole between the holder's node and PostgreSQL"
    takes_the_lock = True  # after `max_hold` the victim's lock is no longer renewed
    measures_recovery = True

    @property
    def proxy(self) -> Proxy:
        """The proxy that becomes the black hole."""
        return self.testbed.database_proxy

    def arm(self) -> None:
        """Give the locks on node A a short `max_hold`, and give buyers a long timeout for answers.

        With the short `max_hold`, a holder that waits for the database soon loses its lock. With
        the long timeout, the victim still waits when node A answers at last.
        """
        self.victim_wait_times: list[float] = []  # seconds from a victim's resumption to its answer
        self.undo_on_heal.callback(self.testbed.restart, self.node)
        self.undo_on_heal.callback(setattr, self.testbed, "answer_timeout", ANSWER_TIMEOUT_SECONDS)
        self.testbed.answer_timeout = 3 * REPLY_TIMEOUT_SECONDS
        self.testbed.restart(self.node, SHOP_LOCK_MAX_HOLD=str(MAX_HOLD_SECONDS))
        self.proxied_connection = self.connect_through_proxy()

    def prove(self) -> str:
        """Prove that PostgreSQL answers a direct connection, but not through node A's proxy."""
        self.proxied_connection.pgconn.send_query(b"SELECT 1")
        # The connection is readable if an answer has arrived, or if it was closed.
        readable, _, _ = select.select([self.proxied_connection.fileno()], [], [], 0.3)
        self.require(not readable, "PostgreSQL answers node A, or its connection was closed")
        self.require(
            self.testbed.run_sql("SELECT 1"), "PostgreSQL does not answer without the proxy either"
        )
        self.dropped_bytes_at_proof = self.proxy.dropped_bytes
        return (
            "PostgreSQL answers a direct connection; through node A's proxy no answer comes, and "
            "the connection stays open"
        )

    def run_buyers(self, trial: Trial) -> None:
        """Resume the victim, which then waits for the database, and wait until a rival has bought.

        The victim is the buyer whom the fault hits. A rival is a buyer on the other node.
        If the victim is answered `unavailable`, record how long it waited.
        """
        resumed_at = time.monotonic()
        trial.resume_victim(timeout_seconds=0)
        rival = trial.start_buyer(trial.add_buyer("rival-1"))
        rival.is_done.wait(REPLY_TIMEOUT_SECONDS + SLACK_SECONDS)
        if trial.strategy["renewed"]:
            self._check_that_victim_blocked_others(trial)
        if trial.expect_first_outcome("unavailable", REPLY_TIMEOUT_SECONDS + SLACK_SECONDS):
            self.victim_wait_times.append(time.monotonic() - resumed_at)

    def _check_that_victim_blocked_others(self, trial: Trial) -> None:
        """Mark the trial as inconclusive if another buyer bought while the lock should block it.

        The victim's lock is renewed while the victim waits for the database, and blocks the other
        buyers for nearly the longest time that the strategy allows.
        """
        blocked_seconds = trial.measure_seconds_to_first_sale(self.fired_at)
        longest_seconds = self._get_longest_blocking_seconds(trial.strategy)
        shortest_expected_seconds = longest_seconds - TTL_SECONDS - BLOCKING_TOLERANCE_SECONDS
        if blocked_seconds is not None and blocked_seconds < shortest_expected_seconds:
            trial.mark_inconclusive(
                f"the victim blocked other buyers for {blocked_seconds:.1f} s only"
            )

    def get_longest_recovery_seconds(self, strategy: StrategyFacts) -> float:
        """Return the seconds after the start of the fault within which a buyer must buy."""
        return self._get_longest_blocking_seconds(strategy) + SLACK_SECONDS

    def _get_longest_blocking_seconds(self, strategy: StrategyFacts) -> float:
        """Return the longest time for which a holder that waits for the database blocks others."""
        has_max_hold = strategy["fenced"]  # only a lock with a fence has a `max_hold`
        if has_max_hold:
            return MAX_HOLD_SECONDS + TTL_SECONDS
        return REPLY_TIMEOUT_SECONDS

    def describe_observations(self) -> str:
        """Return the dropped bytes, and the times for which the victims waited."""
        return (
            f"{super().describe_observations()}, its {len(self.victim_wait_times)} victims were "
            f"answered unavailable after {format_range(self.victim_wait_times)}; "
            f"max_hold {MAX_HOLD_SECONDS:g} s"
        )
