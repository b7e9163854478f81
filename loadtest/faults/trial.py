"""One strategy under one fault: a product of its own, a victim, its rivals and the other buyers."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from loadtest.expected import EXPECTED, STOPS
from loadtest.faults.buyer import Buyer
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, VICTIMS, Stage, until
from loadtest.judge.history import Event
from loadtest.judge.verdict import Judgement, judge

STOCK = 10
BUYERS = 20
#: How many of the others shop at one time.
AT_ONCE = 3
#: Seconds for a victim to come to its point, and to be done when it may go on beside a rival.
ENTERS = 10.0
LEAVES = 0.4
LONGEST_DRAIN = 40.0


class Scene:
    """One product under one strategy.

    missing  why it shows nothing, or empty
    wrong    what was not as it must be, beside the verdict
    """

    def __init__(self, stage: Stage, fault: Fault, strategy: Mapping[str, Any], run: str) -> None:
        self.stage = stage
        self.fault = fault
        self.lock = str(strategy["name"])
        self.strategy = strategy
        self.expected = EXPECTED[self.lock][fault.name]
        self.stop = STOPS.get(self.lock, {}).get(fault.name, fault.stop)
        # With the run, so that no product's name is the beginning of another's.
        self.product = f"{self.lock}-{fault.name.replace('@', '_')}-{run}"
        self.attempts = f"{run}/{fault.name}/{self.lock}"
        self.buyers: list[Buyer] = []
        self.rivals: list[Buyer] = []
        self.victim: Buyer | None = None
        self.guest: Buyer | None = None
        self.sale = 0
        self.missing = ""
        self.fired_at = self.healed_at = self.entered_at = self.stood = 0.0
        self.wrong: list[str] = []

    # --- who comes ------------------------------------------------------------------------------

    def open(self) -> None:
        """Put the stock on the shelf."""
        shop = self.stage.shop(RIVALS)
        self.sale = int(shop.restock(product=self.product, stock=STOCK)["sale"])

    def buyer(self, name: str, *, stop: str = "", returns: bool = True) -> Buyer:
        """A new buyer, who has not gone shopping yet."""
        attempt = f"{self.attempts}/{name}"
        known = {"lock": self.lock, "product": self.product}
        buyer = Buyer(self.stage.history, attempt=attempt, stop=stop, returns=returns, **known)
        self.buyers.append(buyer)
        return buyer

    def send(self, buyer: Buyer, node: int = RIVALS) -> Buyer:
        """Let it go shopping at a node."""
        buyer.start(self.stage.shop(node))
        return buyer

    def ask_once(self, name: str, node: int = RIVALS) -> str:
        """What a buyer is told who asks once and goes on asking only when all is well again."""
        buyer = self.buyer(name)
        told = buyer.ask(self.stage.shop(node))
        buyer.keep(told)
        return told.outcome

    def victim_enters(self) -> None:
        """The victim comes in on node A and stands at its point."""
        returns = self.fault.returns
        victim = self.victim = self.buyer("victim", stop=self.stop, returns=returns)
        self.send(victim, VICTIMS)
        if not until(lambda: self.stands(victim) or victim.answered.is_set(), ENTERS):
            self.missing = f"the victim never came to {self.stop}"
        elif not self.stands(victim):
            self.missing = f"the victim was told {victim.told.outcome} before it was at {self.stop}"
        self.entered_at = time.monotonic()

    def rival_enters(self, name: str, *, grace: float) -> bool:
        """A rival comes on node B, and stands at its read if it is let in; whether it was."""
        rival = self.send(self.buyer(name, stop="after_read"))
        self.rivals.append(rival)
        return until(lambda: self.stands(rival) or rival.answered.is_set(), grace)

    def outlasts(self, ttl: float) -> None:
        """The victim must stand for longer than its ttl. A rival beside it shows that it did."""
        self.stood = time.monotonic() - self.entered_at
        rival_is_in = any(self.stands(rival) for rival in self.rivals)
        if self.stood < ttl and not rival_is_in:
            self.missing = self.missing or f"the victim stood for {self.stood:.1f} s only"

    def victim_leaves(self, seconds: float = LEAVES) -> None:
        """The victim goes on. One that a rival blocks is left waiting."""
        assert self.victim is not None
        self.stage.let_go(self.victim.attempt, self.stop)
        until(lambda: bool(self.victim and self.victim.first), seconds)

    def victim_was_cut_off(self) -> None:
        """The victim must have lost its connection without an answer."""
        assert self.victim is not None
        if not self.victim.join(5) or self.victim.first != "unknown":
            told = self.victim.first or "nothing yet"
            self.missing = self.missing or f"the victim was told {told}, not cut off"

    def rivals_leave(self) -> None:
        """The rivals go on, in the order in which they came."""
        for rival in self.rivals:
            self.stage.let_go(rival.attempt, "after_read")
            rival.join(LEAVES)

    def rivals_wait(self, how_many: int = 2, *, stop: str = "") -> None:
        """Rivals who want the lock already when it happens."""
        for number in range(1, how_many + 1):
            rival = self.buyer(f"rival-{number}", stop=stop)
            self.rivals.append(self.send(rival))

    def broke(self, what: str) -> None:
        """Something was not as it must be, whatever the verdict."""
        self.wrong.append(what)

    def stands(self, buyer: Buyer, point: str = "") -> bool:
        """Whether it stands at this point, or at the one where it was asked to."""
        return self.stage.stands(buyer.attempt, point or buyer.stop)

    # --- what comes of it -----------------------------------------------------------------------

    def drain(self) -> None:
        """All the others shop, until the shelf is empty or nobody gets anything any more.

        One goes before the others: who finds what the fault left behind meets nobody there.
        """
        self.healed_at = time.monotonic()
        self._shop_on([buyer for buyer in self.buyers if buyer.returns][:1])
        self._shop_on([buyer for buyer in self.buyers if buyer.returns])
        others = range(len(self.buyers), BUYERS)
        self._shop_on([self.buyer(f"buyer-{number:02}") for number in others])

    def _shop_on(self, buyers: Sequence[Buyer]) -> None:
        """Until each of these has an answer that stands, or nobody will get one."""
        idle = [buyer for buyer in buyers if not (buyer.shopping or buyer.answered.is_set())]
        shop = self.stage.shop(RIVALS)
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
        """What is left of its lock on the server."""
        name = f"{self.lock}:{self.product}"
        keys = (f"lock:{name}", f"lock:{{{name}}}")  # the latter RedisLock's
        return [key for key in keys if self.stage.ask(self.stage.main, "EXISTS", key)]

    def judge(self, history: Sequence[Event], orphan: str) -> Judgement:
        """The judge's word, from the history and from what the shop has on record."""
        shop = self.stage.shop(RIVALS)
        report = shop.sale(self.sale)
        return judge(
            initial_stock=int(report["initial_stock"]),
            stock_left=int(report["stock_left"]),
            orders=shop.orders(self.sale),
            told=[buyer.told for buyer in self.buyers if buyer.first],
            history=history,
            ttl=self.fault.ttl,
            fired=not self.missing,
            orphan_lock=orphan,
        )

    def recovery(self) -> float | None:
        """Seconds from the fault to the next sale; 0 if the victim kept nobody out, None if there
        was none."""
        sold = [buyer.sold_at for buyer in self.buyers if buyer.sold_at]
        if not sold or not self.fired_at:
            return None
        return round(max(0.0, min(sold) - self.fired_at), 3)


def still_held(scenes: Sequence[Scene]) -> list[str]:
    """The strategies whose victim's lock is on Redis in this moment. One whose lock has ended by
    itself before the fault shows nothing."""
    held = []
    for scene in scenes:
        if scene.orphans():
            held.append(scene.lock)
        elif scene.strategy["backend"] == "redis" and not scene.strategy["reserves"]:
            scene.missing = scene.missing or "its lock had ended before the fault"
    return held


def stood(scenes: Sequence[Scene]) -> str:
    """For how long the victims stood, the shortest and the longest."""
    times = [scene.stood for scene in scenes]
    return f"{min(times):.2f} to {max(times):.2f} s"


def each(scenes: Sequence[Scene], what: Any) -> None:
    """Do it for every scene at once; the first error is raised when all are through."""
    errors: list[BaseException] = []

    def one(scene: Scene) -> None:
        try:
            what(scene)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(scene,), daemon=True) for scene in scenes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
