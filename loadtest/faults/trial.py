"""One strategy under one fault: its own product, a victim, its rivals and other buyers.

fault.py explains these words. Node A serves the victims, node B their rivals.
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
#: How long to wait until a victim reaches its point.
ENTER_TIMEOUT_SECONDS = 10.0
#: How long to wait for the answer of a resumed buyer, whom a rival may block.
RESUME_TIMEOUT_SECONDS = 0.4
#: Highest tolerated ratio of a lock's measured ttl to the fault's ttl. It allows for rounding, and
#: not for another ttl.
MEASURED_TTL_TOLERANCE = 1.1


class NotFired(RuntimeError):
    """The fault did not happen, so its trials are inconclusive. The message says why."""


class Trial:
    """One strategy under one fault, with a product that no other trial sells.

    strategy_name        the name of the strategy
    expected             the expected verdict
    point                the point at which the victim's purchase stops
    ttl                  seconds that a lock survives a holder that does not renew it
    sale                 the number of the sale; 0 before open()
    attempt_prefix       the part of the attempts that all buyers of the trial share
    inconclusive_reason  why the trial is inconclusive; empty if it is conclusive
    problems             deviations from the required behaviour, in addition to the verdict
    victim               the buyer whom the fault hits; set by the fault's enter()
    rivals               the rivals so far, in the order in which they were sent
    waiting_buyer        under `shutdown`, a buyer of node A who waits for the victim's lock
    measured_ttl         remaining seconds of the victim's lock, measured when the victim stopped;
                         None if the lock does not expire, or no lock server has it
    entered_at           the monotonic time at which send_victim() ended; 0 until then
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
        point: str,
        ttl: float,
    ) -> None:
        self.testbed = testbed
        self.strategy_name = str(strategy["name"])
        self.strategy = strategy
        self.expected = get_expected_verdicts(strategy).get(fault, "exact")
        self.point = point
        self.ttl = ttl
        # The id comes last, so that no product's name is a prefix of another product's name.
        self.product = f"{self.strategy_name}-{fault.replace('@', '_')}-{unique_id}"
        self.attempt_prefix = f"{unique_id}/{fault}/{self.strategy_name}"
        self.buyers: list[FaultBuyer] = []
        self.rivals: list[FaultBuyer] = []
        self.sale = 0
        self.inconclusive_reason = ""
        self.entered_at = 0.0
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

        options  stop_at, asks_again and hold_ms, as in FaultBuyer
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

    def send(self, buyer: FaultBuyer, node: int = RIVALS_NODE) -> FaultBuyer:
        """Start a thread in which a buyer asks a node, and return the buyer."""
        buyer.start(self.testbed.shop(node))
        return buyer

    def ask_once(self, name: str, node: int = RIVALS_NODE) -> str:
        """Let a new buyer send one request now, and return the outcome.

        If the outcome is not final, the buyer asks again, but only after the fault is healed.
        """
        return self.add_buyer(name).ask(self.testbed.shop(node))

    def send_victim(self, *, asks_again: bool) -> None:
        """Start the victim on node A, and wait until it stops at its point.

        The trial is inconclusive if the victim does not stop there.

        asks_again  whether the victim repeats its request after an outcome that is not final
        """
        victim = self.add_buyer("victim", stop_at=self.point, asks_again=asks_again)
        self.victim = victim
        self.send(victim, VICTIMS_NODE)
        self._wait_until_stopped_or_done(victim, ENTER_TIMEOUT_SECONDS)
        if self.testbed.has_stopped_at(victim):
            self._measure_ttl()
        elif victim.is_done.is_set():
            self.mark_inconclusive(
                f"the victim was answered {victim.first_outcome} before {self.point}"
            )
        else:
            self.mark_inconclusive(f"the victim never reached {self.point}")
        self.entered_at = time.monotonic()

    def _wait_until_stopped_or_done(self, buyer: FaultBuyer, timeout_seconds: float) -> None:
        """Wait, for a limited time, until a buyer is stopped at its point or is done."""
        wait_for(
            lambda: self.testbed.has_stopped_at(buyer) or buyer.is_done.is_set(), timeout_seconds
        )

    def _measure_ttl(self) -> None:
        """Set `measured_ttl` to the seconds after which the victim's lock expires.

        The trial is inconclusive if they exceed the fault's ttl by more than MEASURED_TTL_TOLERANCE
        allows.
        """
        zookeeper = self.testbed.zookeeper
        if self.strategy["backend"] == "zookeeper" and zookeeper is not None:
            self.measured_ttl = measure.longest_zookeeper_timeout(zookeeper.hosts)
        else:
            self.measured_ttl = measure.lock_seconds_left(
                self.testbed.valkeys, self.strategy, self.product
            )
        if self.measured_ttl is not None and self.measured_ttl > self.ttl * MEASURED_TTL_TOLERANCE:
            self.mark_inconclusive(
                f"the lock lives for {self.measured_ttl:.1f} s, not {self.ttl:g} s"
            )

    @property
    def outcomes_without_redis(self) -> set[str]:
        """The outcomes allowed for a buyer whose Redis does not reply.

        `unknown` is allowed, too, if the strategy answers with a promise of an order (`deferred`):
        Redis may have stored the promise.
        """
        outcomes = {"unavailable"}
        if self.strategy["deferred"]:
            outcomes.add("unknown")
        return outcomes

    @property
    def victim_attempt(self) -> str:
        """The victim's attempt, which is its Idempotency-Key; known before the victim is sent."""
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

    def send_rival(self, name: str, *, timeout_seconds: float, stop_at: str = "after_read") -> None:
        """Start a rival on node B, and wait until it is stopped or answered.

        stop_at          the point at which the rival stops; by default it has got the lock and
                         read the stock by then
        timeout_seconds  how long to wait at most
        """
        rival = self.add_buyer(name, stop_at=stop_at)
        self.rivals.append(rival)
        self.send(rival)
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
        """Wait until the victim has been stopped for so long that its lock has expired.

        The trial is inconclusive if the victim is answered before that.
        """
        # If the lock has a longer ttl, _measure_ttl() has marked the trial as inconclusive.
        ttl = min(self.lock_lifetime_seconds, self.ttl * MEASURED_TTL_TOLERANCE)
        time.sleep(max(0.0, self.entered_at + ttl - time.monotonic()))
        self.record_stop(self.read_seconds_at_point())
        if self.victim.first_outcome:
            self.mark_inconclusive(
                f"the victim was answered {self.victim.first_outcome} before it was resumed"
            )

    def read_seconds_at_point(self) -> float:
        """Return how many seconds the victim has been stopped at its point, by the history.

        0 if the victim has not reached the point.
        """
        arrivals = self._find_victim_events(f"stops at {self.point}")
        departures = self._find_victim_events(f"leaves {self.point}")
        if not arrivals:
            return 0.0
        end_ns = time.monotonic_ns()  # the victim may still be there
        if departures:
            end_ns = departures[0]["t"]
        return float(end_ns - arrivals[0]["t"]) / 1e9

    def record_stop(self, seconds: float) -> None:
        """Record how long the victim was stopped.

        The trial is inconclusive if the victim's lock cannot have expired in this time.
        """
        self.stopped_seconds = seconds
        if seconds < self.lock_lifetime_seconds:
            self.mark_inconclusive(
                f"the victim was stopped for {seconds:.2f} s only; its lock lives for "
                f"{self.lock_lifetime_seconds:.2f} s"
            )

    def resume_victim(self, timeout_seconds: float = RESUME_TIMEOUT_SECONDS) -> None:
        """Resume the victim, and wait for its answer.

        The wait is short, because a rival may block the victim.
        """
        self.testbed.resume(self.victim)
        wait_for(lambda: self.victim.first_outcome, timeout_seconds)

    def wait_for_victim(self, timeout_seconds: float) -> str:
        """Wait until the victim is done, and return the outcome of its first request.

        Return `nothing` if the first request has no outcome within `timeout_seconds`.
        """
        self.victim.is_done.wait(timeout_seconds)
        return self.victim.first_outcome or "nothing"

    def expect_first_outcome(
        self, outcome: str, timeout_seconds: float = ANSWER_TIMEOUT_SECONDS
    ) -> bool:
        """Wait until the victim is done, and return whether its first request has this outcome.

        The trial is inconclusive if the request has another outcome, or none in time. A request
        that was cut off has the outcome `unknown`.
        """
        first_outcome = self.wait_for_victim(timeout_seconds)
        if first_outcome != outcome:
            self.mark_inconclusive(f"the victim was answered {first_outcome}, not {outcome}")
        return first_outcome == outcome

    def resume_rivals(self) -> None:
        """Resume the rivals in the order in which they started, and wait a short time for each."""
        for rival in self.rivals:
            self.testbed.resume(rival)
            rival.is_done.wait(RESUME_TIMEOUT_SECONDS)

    @property
    def text_in_victims_commands(self) -> str:
        """A text that each of the victim's commands to Redis contains.

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
        names = measure.lock_keys_of(self.strategy_name, self.product)
        return [key for key in names if measure.run_command(self.testbed.main_redis, "EXISTS", key)]

    def seconds_to_first_sale(self, since: float) -> float | None:
        """Return the seconds from `since`, a monotonic time, to the trial's first sale.

        0 if that sale was before `since`; None if there was no sale.
        """
        sale_times = [buyer.sold_at for buyer in self.buyers if buyer.sold_at]
        if not sale_times:
            return None
        return round(max(0.0, min(sale_times) - since), 3)
