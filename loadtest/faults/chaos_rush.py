"""One rush of chaos: every sale at once, disturbances at random times, then the judge."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import cast

from loadtest.faults import measure
from loadtest.faults.buyer import Buyer
from loadtest.faults.disturbances import Disturbance
from loadtest.faults.judged_sale import judge_sale
from loadtest.faults.testbed import TTL, Testbed, until
from loadtest.judge.history import by_product
from loadtest.judge.intervals import ProductHistory
from loadtest.judge.run import Cell
from loadtest.report.story import timeline

STOCK = 12
BUYERS = 20
#: Seconds over which the buyers of a rush start, faster than they can be served with a hold; and
#: seconds over which its disturbances start.
COME_WITHIN = 1.2
DISTURB_WITHIN = 1.3
#: Seconds after the last disturbance for everybody to have a final answer.
DRAIN_TIMEOUT = 60.0


@dataclass
class Made:
    """A disturbance that was made. Times by the monotonic clock.

    evidence  by what it was seen to happen; empty if it was not
    error     what it raised, or empty
    """

    name: str
    began: float
    ended: float = 0.0
    evidence: str = ""
    error: str = ""


@dataclass
class Rush:
    """One rush: its plan, and the outcome of its disturbances.

    hold_ms  milliseconds that each purchase spends between its check and its decrement
    """

    number: int
    seed: int
    locks: Sequence[str]
    chosen: Sequence[Disturbance]
    hold_ms: int
    made: list[Made] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def proven(self) -> list[Made]:
        """The disturbances that were seen to happen."""
        return [one for one in self.made if one.evidence]

    @property
    def at_once(self) -> int:
        """The most disturbances at one moment."""
        moments = [one.began for one in self.made]
        return max((sum(o.began <= at < o.ended for o in self.made) for at in moments), default=0)

    def as_summary(self) -> dict[str, object]:
        """Its line in `summary.json`."""
        return {
            "rush": self.number,
            "seed": self.seed,
            "hold_ms": self.hold_ms,
            "disturbed": [one.name for one in self.made],
            "proven": {one.name: one.evidence for one in self.proven},
            "at_once": self.at_once,
            "seconds": self.seconds,
        }


@dataclass
class Sale:
    """One strategy in one rush."""

    lock: str
    product: str
    number: int
    buyers: list[Buyer]


def play(testbed: Testbed, rush: Rush) -> list[Cell]:
    """Make the rush, and judge each of its sales. A rush in which no disturbance was seen to
    happen shows nothing: its sales are `unknown`, unless they are oversold."""
    chance = Random(rush.seed)
    testbed.new_events()  # those of the rushes before this one
    sales = [_open(testbed, lock, rush) for lock in rush.locks]
    shops = [testbed.shop(node) for node in range(2)]
    buyers = [buyer for sale in sales for buyer in sale.buyers]
    chance.shuffle(buyers)
    begun = time.monotonic()
    with ThreadPoolExecutor(max(1, len(rush.chosen))) as pool:
        on = {one.on: threading.Lock() for one in rush.chosen if one.on}
        for one in rush.chosen:
            pool.submit(_disturb, testbed, rush, one, on, Random(chance.getrandbits(32)))
        for place, buyer in enumerate(buyers):
            time.sleep(max(0.0, begun + COME_WITHIN * place / len(buyers) - time.monotonic()))
            buyer.start(*chance.sample(shops, 2))
    testbed.record_fault("chaos", "ok", "heal", "healed")
    if not until(lambda: all(buyer.answered.is_set() for buyer in buyers), DRAIN_TIMEOUT):
        for buyer in buyers:
            buyer.give_up()
    until(lambda: not any(_orphans(testbed, sale) for sale in sales), TTL + 0.5)
    events = by_product(testbed.new_events())
    cells = [_judge(testbed, rush, sale, ProductHistory(events[sale.product])) for sale in sales]
    rush.seconds = round(time.monotonic() - begun, 2)
    return cells


def _open(testbed: Testbed, lock: str, rush: Rush) -> Sale:
    product = f"{lock}-chaos-{rush.number}_"
    sale = int(testbed.shop(1).restock(product=product, stock=STOCK)["sale"])
    buyers = [
        Buyer(
            testbed.history,
            attempt=f"chaos-{rush.number}/{lock}/buyer-{number:02}",
            lock=lock,
            product=product,
            sale=sale,
            hold_ms=rush.hold_ms,
        )
        for number in range(BUYERS)
    ]
    return Sale(lock, product, sale, buyers)


def _disturb(
    testbed: Testbed,
    rush: Rush,
    disturbance: Disturbance,
    on: dict[str, threading.Lock],
    chance: Random,
) -> None:
    """Make it at a random time. Those that need the same servers wait for each other; the others
    overlap."""
    time.sleep(chance.uniform(0, DISTURB_WITHIN))
    with ExitStack() as alone:
        if disturbance.on:
            alone.enter_context(on[disturbance.on])
        made = Made(disturbance.name, time.monotonic())
        rush.made.append(made)
        testbed.record_fault("chaos", "invoke", "fire", disturbance.name)
        try:
            making = disturbance.make(testbed, chance)
            try:
                while True:
                    time.sleep(next(making))
            except StopIteration as end:
                made.evidence = str(end.value)
        except Exception as error:
            testbed.log.write(traceback.format_exc().encode())
            made.error = f"{type(error).__name__}: {error}"
        made.ended = time.monotonic()
    # Not `fail`: the other disturbances of the rush may have happened.
    what = made.evidence or made.error or "it was not seen to happen"
    kind = "ok" if made.evidence else "info"
    testbed.record_fault("chaos", kind, "prove", f"{disturbance.name}: {what}")


def _orphans(testbed: Testbed, sale: Sale) -> list[str]:
    return measure.lock_keys(testbed.main, sale.lock, sale.product)


def _judge(testbed: Testbed, rush: Rush, sale: Sale, history: ProductHistory) -> Cell:
    judgement = judge_sale(
        testbed.shop(1),
        sale=sale.number,
        lock=sale.lock,
        product=sale.product,
        stock=STOCK,
        buyers=sale.buyers,
        history=history,
        ttl=TTL,
        fired=bool(rush.proven),
        orphan=", ".join(_orphans(testbed, sale)),
    )
    excused = {"overlap"} if any(one.takes_the_lock for one in rush.chosen) else set()
    wrong = sorted(set(judgement.violations) - excused)
    as_expected = judgement.verdict == "exact" and not wrong
    cell = {
        "lock": sale.lock,
        "fault": "chaos",
        "sale": sale.number,
        "buyers": BUYERS,
        "hold_ms": rush.hold_ms,
        **judgement.as_run(),
        "expected": "exact",
        "as_expected": as_expected,
        "round": rush.number,
        "evidence": "; ".join(f"{one.name}: {one.evidence}" for one in rush.proven),
        "missing": "" if rush.proven else "no disturbance was seen to happen",
        "wrong": wrong,
        "recovery_s": None,
        "story": [] if as_expected else timeline(history, judgement),
    }
    return cast(Cell, cell)
