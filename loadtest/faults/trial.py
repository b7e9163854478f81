"""One strategy under one fault: its own product, a victim, its rivals and other buyers."""

import time
from typing import Any

from loadtest.expected import expected_of
from loadtest.faults import measure
from loadtest.faults.fault_buyer import FaultBuyer
from loadtest.faults.testbed import RIVALS, VICTIMS, Testbed, wait_for
from loadtest.judge.verdict import Judgement
from loadtest.stack.client import StrategyFacts

STOCK = 10
#: Buyers of a trial, the victim and its rivals among them.
BUYERS = 20
#: Seconds for a victim to reach its point.
ENTER_TIMEOUT = 10.0
#: Seconds that a resumed buyer is waited for: a rival may block it.
RESUME_TIMEOUT = 0.4
#: Tolerated ratio of a measured ttl to the fault's: Redis rounds, and watchdogs are early.
MEASURED_TTL_TOLERANCE = 1.1


class NotFired(RuntimeError):
    """The fault did not happen, so the run shows nothing. The message says what was missing."""


class Trial:
    """One product under one strategy.

    stop         the point at which the victim stops
    ttl          seconds that a lock survives a silent holder under this fault
    missing      why the trial shows nothing, or empty
    wrong        what was not as it must be, in addition to the verdict
    victim       who stops at the point, once it has entered
    guest        who asks the victim's node while it ends, under `shutdown`
    lock_ttl     seconds that the victim's lock had left when it stopped, measured; None if it
                 does not end by itself, or not on a Redis
    stopped_for  seconds that the victim was stopped
    judgement    on its sale, once it is over
    """

    victim: FaultBuyer
    guest: FaultBuyer
    judgement: Judgement

    def __init__(
        self,
        testbed: Testbed,
        strategy: StrategyFacts,
        run: str,
        *,
        fault: str,
        stop: str,
        ttl: float,
    ) -> None:
        self.testbed = testbed
        self.lock = str(strategy["name"])
        self.strategy = strategy
        self.expected = expected_of(strategy).get(fault, "exact")
        self.stop = stop
        self.ttl = ttl
        # With the run at its end, so that no product's name is the beginning of another's.
        self.product = f"{self.lock}-{fault.replace('@', '_')}-{run}"
        self.attempts = f"{run}/{fault}/{self.lock}"
        self.buyers: list[FaultBuyer] = []
        self.rivals: list[FaultBuyer] = []
        self.sale = 0
        self.missing = ""
        self.entered_at = self.stopped_for = 0.0
        self.lock_ttl: float | None = None
        self.wrong: list[str] = []

    def miss(self, why: str) -> None:
        """Note why the trial shows nothing. The first reason counts."""
        self.missing = self.missing or why

    def open(self) -> None:
        """Open the sale."""
        shop = self.testbed.shop(RIVALS)
        self.sale = int(shop.restock(product=self.product, stock=STOCK, lock=self.lock)["sale"])

    # --- buyers ---------------------------------------------------------------------------------

    def buyer(self, name: str, **how: Any) -> FaultBuyer:
        """Return a new buyer, not started yet.

        how  stop, asks_again and hold_ms, as in FaultBuyer
        """
        attempt, sold = f"{self.attempts}/{name}", (self.lock, self.product, self.sale)
        self.buyers.append(FaultBuyer(self.testbed.history, attempt, *sold, **how))
        return self.buyers[-1]

    def send(self, buyer: FaultBuyer, node: int = RIVALS) -> FaultBuyer:
        """Start a buyer at a node."""
        buyer.start(self.testbed.shop(node))
        return buyer

    def ask_once(self, name: str, node: int = RIVALS) -> str:
        """The outcome for a new buyer who asks once, and again only in the drain."""
        return self.buyer(name).ask(self.testbed.shop(node))

    def victim_enters(self, *, asks_again: bool) -> None:
        """Start the victim on node A, and wait until it stops at its point."""
        victim = self.victim = self.buyer("victim", stop=self.stop, asks_again=asks_again)
        self._wait_for(self.send(victim, VICTIMS), ENTER_TIMEOUT)
        if self.testbed.is_stopped_at(victim):
            self._measure_ttl()
        elif victim.is_done.is_set():
            self.miss(f"the victim was answered {victim.first} before {self.stop}")
        else:
            self.miss(f"the victim never reached {self.stop}")
        self.entered_at = time.monotonic()

    def _wait_for(self, buyer: FaultBuyer, seconds: float) -> None:
        """Wait until a buyer is stopped at its point or has its last answer, at most so long."""
        wait_for(lambda: self.testbed.is_stopped_at(buyer) or buyer.is_done.is_set(), seconds)

    def _measure_ttl(self) -> None:
        """Measure how long the victim's lock would live on, and require that it is
        the fault's ttl."""
        zookeeper = self.testbed.zookeeper
        if self.strategy["backend"] == "zookeeper" and zookeeper is not None:
            self.lock_ttl = measure.session_seconds(zookeeper.hosts)
        else:
            self.lock_ttl = measure.seconds_left(self.testbed.valkeys, self.strategy, self.product)
        if self.lock_ttl is not None and self.lock_ttl > self.ttl * MEASURED_TTL_TOLERANCE:
            self.miss(f"the lock lives for {self.lock_ttl:.1f} s, not {self.ttl:g} s")

    @property
    def without_reply(self) -> set[str]:
        """The outcomes for a buyer whose Redis does not reply: a promise may have been made."""
        outcomes = {"unavailable"}
        if self.strategy["deferred"]:
            outcomes.add("unknown")
        return outcomes

    @property
    def victim_pid(self) -> int:
        """The process that the stopped victim is in, by that process's own record; 0: it has
        none."""
        stops = self.victim.attempt, f"stops at {self.victim.stop}"
        events = self.testbed.events()
        pids = [event["pid"] for event in events if (event.get("attempt"), event["f"]) == stops]
        if not pids:
            return 0
        return pids[-1]

    def rival_enters(self, name: str, *, grace: float, stop: str = "after_read") -> None:
        """Start a rival on node B, which stops at its read if it is let in. Wait until it is
        stopped or answered, at most `grace` seconds."""
        self.rivals.append(self.send(self.buyer(name, stop=stop)))
        self._wait_for(self.rivals[-1], grace)

    @property
    def lives_for(self) -> float:
        """Seconds that the victim's lock lives by itself, as measured; for one without a ttl, the
        fault's."""
        if self.lock_ttl is None:
            return self.ttl
        return self.lock_ttl

    def outlast_ttl(self) -> None:
        """Wait until the victim was stopped for longer than its lock lives.

        The trial shows nothing if the victim was not at its point all the time.
        """
        ttl = min(self.lives_for, self.ttl * MEASURED_TTL_TOLERANCE)
        time.sleep(max(0.0, self.entered_at + ttl - time.monotonic()))
        self.was_stopped(self.seconds_at_point())
        if self.victim.first:
            self.miss(f"the victim was answered {self.victim.first} before it was resumed")

    def seconds_at_point(self) -> float:
        """Return for how long the victim has been at its point, by its node's own record."""
        arrived_ns = left_ns = 0
        for event in self.testbed.events():
            if event.get("attempt") != self.victim.attempt:
                continue
            if event["f"] == f"stops at {self.stop}":
                arrived_ns = arrived_ns or event["t"]
            elif event["f"] == f"leaves {self.stop}":
                left_ns = left_ns or event["t"]
        if not arrived_ns:
            return 0.0
        return ((left_ns or time.monotonic_ns()) - arrived_ns) / 1e9

    def was_stopped(self, seconds: float) -> None:
        """Note for how long the victim was stopped, and check that its lock lives for less."""
        ttl = self.lives_for
        self.stopped_for = seconds
        if seconds < ttl:
            self.miss(f"stopped for {seconds:.2f} s, and the lock lives for {ttl:.2f} s")

    def resume_victim(self, seconds: float = RESUME_TIMEOUT) -> None:
        """Resume the victim. If a rival blocks it, leave it waiting after this many seconds."""
        self.testbed.resume(self.victim)
        wait_for(lambda: self.victim.first, seconds)

    def first_answer(self, seconds: float) -> str:
        """The first answer to the victim once it has its last one, which is waited for as long;
        `nothing` if it has none."""
        self.victim.is_done.wait(seconds)
        return self.victim.first or "nothing"

    def victim_must_be(self, outcome: str, seconds: float = 10.0) -> bool:
        """Return whether this is the victim's first answer; otherwise the trial proves nothing.

        The outcome of a victim that was cut off is `unknown`.
        """
        first = self.first_answer(seconds)
        if first != outcome:
            self.miss(f"the victim was answered {first}, not {outcome}")
        return first == outcome

    def resume_rivals(self) -> None:
        """Resume the rivals, in the order in which they started."""
        for rival in self.rivals:
            self.testbed.resume(rival)
            rival.is_done.wait(RESUME_TIMEOUT)

    @property
    def key_of_victim(self) -> str:
        """The text that the victim's commands to Redis contain: a reservation does not name the
        product, but its arguments name the attempt."""
        if self.strategy["reserves"]:
            return f"{self.attempts}/victim"
        return self.product

    # --- the outcome ----------------------------------------------------------------------------

    def orphans(self) -> list[str]:
        """The keys of this trial's lock that are on the server."""
        names = measure.names_of(self.lock, self.product)
        return [key for key in names if measure.ask(self.testbed.main, "EXISTS", key)]

    def recovery(self, since: float) -> float | None:
        """Return the seconds to the next sale: 0 if the victim blocked no buyer, None if there was
        no further sale."""
        sold = [buyer.sold_at for buyer in self.buyers if buyer.sold_at]
        if not sold:
            return None
        return round(max(0.0, min(sold) - since), 3)
