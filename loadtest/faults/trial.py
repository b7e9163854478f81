"""One strategy under one fault: a product of its own, a victim, its rivals and other buyers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from loadtest.expected import EXPECTED, STOPS
from loadtest.faults.buyer import Buyer
from loadtest.faults.testbed import RIVALS, VICTIMS, Testbed, until
from loadtest.judge.intervals import ProductHistory
from loadtest.judge.verdict import Asked, Judgement, judge

STOCK = 10
BUYERS = 20
#: How many of the other buyers buy at one time.
AT_ONCE = 3
#: Seconds for a victim to reach its point.
ENTER_TIMEOUT = 10.0
#: Seconds that a resumed buyer is waited for: a rival may block it.
RESUME_TIMEOUT = 0.4
LONGEST_DRAIN = 40.0
#: By how many ttl a dead holder may keep the others out: the ttl, and as much for a busy machine.
RECOVERS_WITHIN = 2.0


class Traits(Protocol):
    """What a trial needs to know of its fault; see Fault."""

    @property
    def name(self) -> str: ...
    @property
    def stop(self) -> str: ...
    @property
    def ttl(self) -> float: ...
    @property
    def asks_again(self) -> bool: ...


class Trial:
    """One product under one strategy.

    missing      why the trial shows nothing, or empty
    wrong        what was not as it must be, beside the verdict
    stopped_for  seconds that the victim was stopped
    """

    def __init__(
        self, testbed: Testbed, fault: Traits, strategy: Mapping[str, Any], run: str
    ) -> None:
        self.testbed = testbed
        self.fault = fault
        self.lock = str(strategy["name"])
        self.strategy = strategy
        self.expected = EXPECTED[self.lock][fault.name]
        self.stop = STOPS.get(self.lock, {}).get(fault.name, fault.stop)
        # With the run at its end, so that no product's name is the beginning of another's.
        self.product = f"{self.lock}-{fault.name.replace('@', '_')}-{run}"
        self.attempts = f"{run}/{fault.name}/{self.lock}"
        self.buyers: list[Buyer] = []
        self.rivals: list[Buyer] = []
        self.victim: Buyer | None = None
        self.guest: Buyer | None = None
        self.sale = 0
        self.missing = ""
        self.fired_at = self.healed_at = self.entered_at = self.stopped_for = 0.0
        self.wrong: list[str] = []

    # --- buyers ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the sale."""
        shop = self.testbed.shop(RIVALS)
        self.sale = int(shop.restock(product=self.product, stock=STOCK)["sale"])

    def buyer(self, name: str, *, stop: str = "", asks_again: bool = True) -> Buyer:
        """A new buyer, not started yet."""
        attempt = f"{self.attempts}/{name}"
        buyer = Buyer(
            self.testbed.history,
            attempt=attempt,
            lock=self.lock,
            product=self.product,
            sale=self.sale,
            stop=stop,
            asks_again=asks_again,
        )
        self.buyers.append(buyer)
        return buyer

    def send(self, buyer: Buyer, node: int = RIVALS) -> Buyer:
        """Start a buyer at a node."""
        buyer.start(self.testbed.shop(node))
        return buyer

    def ask_once(self, name: str, node: int = RIVALS) -> str:
        """The outcome for a new buyer who asks once, and again only in the drain."""
        buyer = self.buyer(name)
        buyer.take(buyer.ask(self.testbed.shop(node)))
        return buyer.reply.outcome

    def victim_enters(self) -> None:
        """Start the victim on node A, and wait until it stops at its point."""
        asks_again = self.fault.asks_again
        victim = self.victim = self.buyer("victim", stop=self.stop, asks_again=asks_again)
        self.send(victim, VICTIMS)
        if not until(lambda: self.is_stopped_at(victim) or victim.answered.is_set(), ENTER_TIMEOUT):
            self.missing = f"the victim never reached {self.stop}"
        elif not self.is_stopped_at(victim):
            self.missing = f"the victim was answered {victim.reply.outcome} before {self.stop}"
        self.entered_at = time.monotonic()

    def rival_enters(self, name: str, *, grace: float) -> bool:
        """Start a rival on node B, which stops at its read if it is let in. Returns whether it is
        stopped or answered within `grace` seconds."""
        rival = self.send(self.buyer(name, stop="after_read"))
        self.rivals.append(rival)
        return until(lambda: self.is_stopped_at(rival) or rival.answered.is_set(), grace)

    def require_stop_of(self, ttl: float) -> None:
        """Check that the victim was stopped past the ttl; a rival beside it proves that too."""
        self.stopped_for = time.monotonic() - self.entered_at
        rival_is_in = any(self.is_stopped_at(rival) for rival in self.rivals)
        if self.stopped_for < ttl and not rival_is_in:
            self.missing = (
                self.missing or f"the victim was stopped for {self.stopped_for:.1f} s only"
            )

    def resume_victim(self, seconds: float = RESUME_TIMEOUT) -> None:
        """Resume the victim. If a rival blocks it, leave it waiting after so many seconds."""
        assert self.victim is not None
        self.testbed.resume(self.victim.attempt, self.stop)
        until(lambda: bool(self.victim and self.victim.first), seconds)

    def victim_was_cut_off(self) -> None:
        """Check that the victim lost its connection without an answer."""
        assert self.victim is not None
        if not self.victim.join(5) or self.victim.first != "unknown":
            outcome = self.victim.first or "nothing yet"
            self.missing = self.missing or f"the victim was answered {outcome}, not cut off"

    def resume_rivals(self) -> None:
        """Resume the rivals, in the order in which they started."""
        for rival in self.rivals:
            self.testbed.resume(rival.attempt, "after_read")
            rival.join(RESUME_TIMEOUT)

    def start_rivals(self, how_many: int = 2, *, stop: str = "") -> None:
        """Start rivals that wait for the lock already when the fault happens."""
        for number in range(1, how_many + 1):
            rival = self.buyer(f"rival-{number}", stop=stop)
            self.rivals.append(self.send(rival))

    def is_stopped_at(self, buyer: Buyer, point: str = "") -> bool:
        """Whether a buyer is stopped at this point; without one, at its own."""
        return self.testbed.is_stopped_at(buyer.attempt, point or buyer.stop)

    # --- the outcome ----------------------------------------------------------------------------

    def drain(self) -> None:
        """Let all the other buyers buy, until the shelf is empty or nobody can buy any more.

        One goes first: it finds what the fault left behind, with nobody beside it.
        """
        self.healed_at = time.monotonic()
        self._let_buy([buyer for buyer in self.buyers if buyer.asks_again][:1])
        self._let_buy([buyer for buyer in self.buyers if buyer.asks_again])
        others = range(len(self.buyers), BUYERS)
        self._let_buy([self.buyer(f"buyer-{number:02}") for number in others])

    def _let_buy(self, buyers: Sequence[Buyer]) -> None:
        """Wait until each of these has a final answer, or nobody can buy any more."""
        idle = [buyer for buyer in buyers if not (buyer.started or buyer.answered.is_set())]
        shop = self.testbed.shop(RIVALS)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            done = [pool.submit(buyer.buy, shop) for buyer in idle]
            while not all(buyer.answered.is_set() for buyer in buyers):
                if self._stuck():
                    for buyer in buyers:
                        buyer.give_up()
                time.sleep(0.02)
        for one in done:
            one.result()

    def _stuck(self) -> bool:
        last = max(self.healed_at, *(buyer.sold_at for buyer in self.buyers))
        now = time.monotonic()
        return now - last > 3 * self.fault.ttl + 0.5 or now - self.healed_at > LONGEST_DRAIN

    def orphans(self) -> list[str]:
        """The keys of this trial's lock that are on the server."""
        name = f"{self.lock}:{self.product}"
        keys = (f"lock:{name}", f"lock:{{{name}}}")  # the second one is RedisLock's
        return [key for key in keys if self.testbed.ask(self.testbed.main, "EXISTS", key)]

    def judge(self, history: ProductHistory, orphan: str) -> Judgement:
        """The judgement on the history and on the shop's own record."""
        shop = self.testbed.shop(RIVALS)
        report = shop.sale(self.sale)
        return judge(
            initial_stock=int(report["initial_stock"]),
            stock_left=int(report["stock_left"]),
            orders=shop.orders(self.sale),
            replies=[buyer.reply for buyer in self.buyers if buyer.first],
            history=history,
            ttl=self.fault.ttl,
            fired=not self.missing,
            orphan_lock=orphan,
            asked=Asked(
                stock=STOCK,
                buyers=[buyer.attempt for buyer in self.buyers],
                lock=self.lock,
                product=self.product,
                sale=self.sale,
                recorded=True,
                excused=frozenset(b.attempt for b in self.buyers if not b.asks_again),
            ),
        )

    def recover(self) -> float | None:
        """`recovery`, which is wrong where it took longer than a lock may keep the others out."""
        took = self.recovery()
        if late := late_recovery(took, self.fault.ttl):
            self.wrong.append(late)
        return took

    def recovery(self) -> float | None:
        """Seconds from the fault to the next sale: 0 if the victim kept nobody out, None if nobody
        bought any more."""
        sold = [buyer.sold_at for buyer in self.buyers if buyer.sold_at]
        if not sold or not self.fired_at:
            return None
        return round(max(0.0, min(sold) - self.fired_at), 3)


def late_recovery(seconds: float | None, ttl: float) -> str:
    """What is wrong with a recovery that took so long; empty if nothing is, or nobody recovered."""
    if seconds is None or seconds <= RECOVERS_WITHIN * ttl:
        return ""
    return f"nobody bought for {seconds:.1f} s, and the ttl is {ttl:g} s"


def still_held(trials: Sequence[Trial]) -> list[str]:
    """The strategies whose victim's lock is on Redis now. A trial whose lock ended by itself before
    the fault shows nothing."""
    held = []
    for trial in trials:
        if trial.orphans():
            held.append(trial.lock)
        elif trial.strategy["backend"] == "redis" and not trial.strategy["reserves"]:
            trial.missing = trial.missing or "its lock had ended before the fault"
    return held


def stopped_for(trials: Sequence[Trial]) -> str:
    """How long the victims were stopped: the shortest time and the longest."""
    times = [trial.stopped_for for trial in trials]
    return f"{min(times):.2f} to {max(times):.2f} s"


def each(trials: Sequence[Trial], what: Callable[[Trial], object]) -> None:
    """Do it for all trials at once, in threads. Raises the first error when all have ended."""
    errors: list[BaseException] = []

    def one(trial: Trial) -> None:
        try:
            what(trial)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(trial,), daemon=True) for trial in trials]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
