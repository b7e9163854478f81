"""A trial: one strategy under one fault, with a sale of its own product.

Node A serves the victim, who is the buyer whom the fault hits. Node B serves its rivals, who are
buyers that come while the victim is stopped. fault.py describes the steps of a fault.
"""

import time
from typing import Any

from loadtest.expected import get_expected_verdicts
from loadtest.faults import measure
from loadtest.faults.fault_buyer import FaultBuyer
from loadtest.faults.testbed import (
    ANSWER_TIMEOUT_SECONDS,
    RIVALS_NODE,
    VICTIMS_NODE,
    Testbed,
    wait_for,
)
from loadtest.judge.history import Event
from loadtest.judge.verdict import Judgement
from loadtest.stack.client import StrategyFacts

#: Number of units in the sale of a trial.
STOCK = 10
#: Number of buyers in a trial, including the victim and its rivals.
BUYERS = 20
#: How long to wait until a victim stops in its purchase.
VICTIM_STOP_TIMEOUT_SECONDS = 10.0
#: How long to wait for the answer of a resumed buyer, whom a rival may block.
RESUME_TIMEOUT_SECONDS = 0.4
#: Highest tolerated ratio of a lock's measured ttl to the fault's ttl. Rounding stays below it.
MEASURED_TTL_TOLERANCE = 1.1


class NotFired(RuntimeError):
    """The fault did not happen, so its trials are inconclusive. The message says why."""


class Trial:
    """One strategy under one fault, with a product that no other trial sells.

    strategy_name        the name of the strategy
    expected             the expected verdict
    victim_stop_point    the point of the purchase (shop/sale/points.py) at which the victim stops
    ttl                  seconds after which a lock expires if its holder does not renew it
    sale                 the number of the sale; 0 before open()
    attempt_prefix       the part of the attempts that all buyers of the trial share
    inconclusive_reason  why the trial is inconclusive; empty if it is conclusive
    problems             texts on behaviour that is not as required, in addition to the verdict
    victim               the buyer whom the fault hits; set by the fault's start_first_buyers()
    rivals               the rivals so far, in the order in which they were started
    waiting_buyer        under `shutdown`, a buyer of node A who waits for the victim's lock
    measured_ttl         remaining seconds of the victim's lock, measured when the victim stopped;
                         None if the lock does not expire, or no lock server has it
    victim_stopped_at    the monotonic time at which the victim had stopped; 0 until then
    stopped_seconds      how long the victim was stopped; 0 until this was measured
    buyers               all buyers so far, the victim and its rivals included
    judgement            the judgement on the sale, set after the sale
    """

    victim: FaultBuyer
    waiting_buyer: FaultBuyer
    judgement: Judgement

    def __init__(
        self,
        testbed: Testbed,
        strategy: StrategyFacts,
        unique_id: str,
        *,
        fault: str,
        victim_stop_point: str,
        ttl: float,
    ) -> None:
        self.testbed = testbed
        self.strategy_name = str(strategy["name"])
        self.strategy = strategy
        self.expected = get_expected_verdicts(strategy).get(fault, "exact")
        self.victim_stop_point = victim_stop_point
        self.ttl = ttl
        # The id comes last, so that no product's name is a prefix of another product's name.
        self.product = f"{self.strategy_name}-{fault.replace('@', '_')}-{unique_id}"
        self.attempt_prefix = f"{unique_id}/{fault}/{self.strategy_name}"
        self.buyers: list[FaultBuyer] = []
        self.rivals: list[FaultBuyer] = []
        self.sale = 0
        self.inconclusive_reason = ""
        self.victim_stopped_at = 0.0
        self.stopped_seconds = 0.0
        self.measured_ttl: float | None = None
        self.problems: list[str] = []

    def mark_inconclusive(self, reason: str) -> None:
        """Mark the trial as inconclusive. Only the first reason is kept."""
        self.inconclusive_reason = self.inconclusive_reason or reason

    def open(self) -> None:
        """Open a sale of the trial's product, and set `sale` to the number of the sale."""
        shop = self.testbed.shop(RIVALS_NODE)
        self.sale = int(
            shop.restock(product=self.product, stock=STOCK, lock=self.strategy_name)["sale"]
        )

    # --- buyers ---------------------------------------------------------------------------------

    def add_buyer(self, name: str, **options: Any) -> FaultBuyer:
        """Add a buyer to the trial and return it, not started yet.

        options  the fields stop_at, retries and hold_ms of FaultBuyer
        """
        buyer = FaultBuyer(
            self.testbed.history,
            attempt=f"{self.attempt_prefix}/{name}",
            lock=self.strategy_name,
            product=self.product,
            sale=self.sale,
            **options,
        )
        self.buyers.append(buyer)
        return buyer

    def start_buyer(self, buyer: FaultBuyer, node: int = RIVALS_NODE) -> FaultBuyer:
        """Start a thread in which a buyer sends requests to a node, and return the buyer."""
        buyer.start(self.testbed.shop(node))
        return buyer

    def send_one_request(self, name: str, node: int = RIVALS_NODE) -> str:
        """Let a new buyer send one request now, and return the outcome.

        A buyer without a unit sends further requests later, when the fault is undone.
        """
        return self.add_buyer(name).send_request(self.testbed.shop(node))

    def start_victim(self, *, retries: bool) -> None:
        """Start the victim on node A, and wait until its purchase stops at `victim_stop_point`.

        The victim is the buyer whom the fault hits. The trial is inconclusive if the victim does
        not stop there.

        retries  whether the victim repeats its request after an outcome that is retried
        """
        victim = self.add_buyer("victim", stop_at=self.victim_stop_point, retries=retries)
        self.victim = victim
        self.start_buyer(victim, VICTIMS_NODE)
        self._wait_until_stopped_or_done(victim, VICTIM_STOP_TIMEOUT_SECONDS)
        if self.testbed.has_stopped_at(victim):
            self._measure_ttl()
        elif victim.is_done.is_set():
            self.mark_inconclusive(
                f"the victim was answered {victim.first_outcome} before {self.victim_stop_point}"
            )
        else:
            self.mark_inconclusive(f"the victim never reached {self.victim_stop_point}")
        self.victim_stopped_at = time.monotonic()

    def _wait_until_stopped_or_done(self, buyer: FaultBuyer, timeout_seconds: float) -> None:
        """Wait, for a limited time, until a buyer has stopped at its `stop_at` or is done."""
        wait_for(
            lambda: self.testbed.has_stopped_at(buyer) or buyer.is_done.is_set(), timeout_seconds
        )

    def _measure_ttl(self) -> None:
        """Set `measured_ttl` to the seconds after which the victim's lock expires.

        The trial is inconclusive if the measured ttl is longer than `ttl` multiplied by
        MEASURED_TTL_TOLERANCE, because the fault waits no longer than that.
        """
        zookeeper = self.testbed.zookeeper
        if self.strategy["backend"] == "zookeeper" and zookeeper is not None:
            self.measured_ttl = measure.read_longest_zookeeper_timeout(zookeeper.hosts)
        else:
            self.measured_ttl = measure.read_lock_seconds_left(
                self.testbed.valkeys, self.strategy, self.product
            )
        if self.measured_ttl is not None and self.measured_ttl > self.ttl * MEASURED_TTL_TOLERANCE:
            self.mark_inconclusive(
                f"the lock expires after {self.measured_ttl:.1f} s, not after {self.ttl:g} s"
            )

    @property
    def outcomes_without_redis(self) -> set[str]:
        """The outcomes allowed for a buyer whose Redis does not reply.

        `unknown` is also allowed under a strategy that stores a promise of the order in Redis and
        writes the order later (`deferred`): Redis may have stored the promise.
        """
        outcomes = {"unavailable"}
        if self.strategy["deferred"]:
            outcomes.add("unknown")
        return outcomes

    @property
    def victim_attempt(self) -> str:
        """The victim's attempt, which is its Idempotency-Key; known before the victim starts."""
        return f"{self.attempt_prefix}/victim"

    @property
    def victim_pid(self) -> int:
        """The pid of the process in which the victim is stopped, as that process recorded it.

        0 if no process has recorded the stop.
        """
        stop_events = self._find_victim_events(f"stops at {self.victim.stop_at}")
        if not stop_events:
            return 0
        return int(stop_events[-1]["pid"])

    def _find_victim_events(self, name: str) -> list[Event]:
        """Return the victim's events with this name (their field `f`), oldest first."""
        return [
            event
            for event in self.testbed.events()
            if event["f"] == name and event.get("attempt") == self.victim.attempt
        ]

    def start_rival(
        self, name: str, *, timeout_seconds: float, stop_at: str = "after_read"
    ) -> None:
        """Start a rival on node B, and wait until its purchase has stopped or is answered.

        A rival is a buyer who tries to buy while the victim of the fault is stopped.

        stop_at          the points of the purchase at which the rival stops, comma-separated; by
                         default after it has got the lock and read the stock
        timeout_seconds  how long to wait at most
        """
        rival = self.add_buyer(name, stop_at=stop_at)
        self.rivals.append(rival)
        self.start_buyer(rival)
        self._wait_until_stopped_or_done(rival, timeout_seconds)

    @property
    def lock_lifetime_seconds(self) -> float:
        """The seconds after which the victim's lock expires if its holder does not renew it.

        This is the measured ttl, or the fault's ttl if nothing was measured.
        """
        if self.measured_ttl is None:
            return self.ttl
        return self.measured_ttl

    def wait_until_ttl_is_over(self) -> None:
        """Wait until the lifetime of the victim's lock has passed since the victim stopped.

        The trial is inconclusive if the victim is answered during this wait.
        """
        # If the lock's lifetime is above this limit, _measure_ttl() has marked the trial as
        # inconclusive already.
        wait_seconds = min(self.lock_lifetime_seconds, self.ttl * MEASURED_TTL_TOLERANCE)
        time.sleep(max(0.0, self.victim_stopped_at + wait_seconds - time.monotonic()))
        self.record_stop_duration(self.read_victim_stop_seconds())
        if self.victim.first_outcome:
            self.mark_inconclusive(
                f"the victim was answered {self.victim.first_outcome} before it was resumed"
            )

    def read_victim_stop_seconds(self) -> float:
        """Return for how many seconds the victim has been stopped, from the recorded events.

        0 if the victim has not been stopped yet.
        """
        stop_events = self._find_victim_events(f"stops at {self.victim_stop_point}")
        leave_events = self._find_victim_events(f"leaves {self.victim_stop_point}")
        if not stop_events:
            return 0.0
        end_ns = time.monotonic_ns()  # the victim may still be stopped
        if leave_events:
            end_ns = leave_events[0]["t"]
        return float(end_ns - stop_events[0]["t"]) / 1e9

    def record_stop_duration(self, seconds: float) -> None:
        """Record how long the purchase of the victim (the buyer whom the fault hits) was stopped.

        The trial is inconclusive if the victim's lock cannot have expired in this time.
        """
        self.stopped_seconds = seconds
        if seconds < self.lock_lifetime_seconds:
            self.mark_inconclusive(
                f"the victim was stopped for {seconds:.2f} s only, but its lock expires after "
                f"{self.lock_lifetime_seconds:.2f} s"
            )

    def resume_victim(self, timeout_seconds: float = RESUME_TIMEOUT_SECONDS) -> None:
        """Resume the victim (the buyer whom the fault hits), and wait for its answer.

        The wait is short, because another buyer may block the victim.
        """
        self.testbed.resume(self.victim)
        wait_for(lambda: self.victim.first_outcome, timeout_seconds)

    def wait_for_first_outcome(self, timeout_seconds: float) -> str:
        """Wait until the victim sends no more requests, and return its first request's outcome.

        Return "nothing", for the messages, if the first request has no outcome within
        `timeout_seconds`.
        """
        self.victim.is_done.wait(timeout_seconds)
        return self.victim.first_outcome or "nothing"

    def expect_first_outcome(
        self, outcome: str, timeout_seconds: float = ANSWER_TIMEOUT_SECONDS
    ) -> bool:
        """Mark the trial as inconclusive unless the victim's first request has this outcome.

        Wait for the outcome until the timeout. A request that was cut off has the outcome
        `unknown`. Return whether the outcome is as expected.
        """
        first_outcome = self.wait_for_first_outcome(timeout_seconds)
        if first_outcome != outcome:
            self.mark_inconclusive(f"the victim was answered {first_outcome}, not {outcome}")
        return first_outcome == outcome

    def resume_rivals(self) -> None:
        """Resume the rivals (buyers who compete with the victim), and wait a short time for each.

        They are resumed in the order in which they started.
        """
        for rival in self.rivals:
            self.testbed.resume(rival)
            rival.is_done.wait(RESUME_TIMEOUT_SECONDS)

    @property
    def victim_command_text(self) -> str:
        """A text that every command of the victim to Redis contains, to recognize the command.

        This is the attempt if the strategy reserves a unit in Redis, and otherwise the name of the
        product, which the lock's key contains.
        """
        if self.strategy["reserves"]:
            return self.victim_attempt
        return self.product

    # --- the outcome ----------------------------------------------------------------------------

    def find_lock_keys(self) -> list[str]:
        """Return the keys of this trial's lock that exist on the main Redis now.

        Empty for a strategy without a lock on the main Redis.
        """
        names = measure.list_lock_keys(self.strategy_name, self.product)
        return [key for key in names if measure.run_command(self.testbed.main_redis, "EXISTS", key)]

    def measure_seconds_to_first_sale(self, since: float) -> float | None:
        """Return the seconds from `since`, a monotonic time, to the trial's first sale.

        0 if that sale was before `since`; None if there was no sale.
        """
        sale_times = [buyer.sold_at for buyer in self.buyers if buyer.sold_at]
        if not sale_times:
            return None
        return round(max(0.0, min(sale_times) - since), 3)
