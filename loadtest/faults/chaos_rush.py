"""One rush of chaos: every sale at once, disturbances at random times, then the judge."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random

from loadtest.faults.disturbances import Disturbance
from loadtest.faults.fault import Fault
from loadtest.faults.runner import BUYERS, judged, reason
from loadtest.faults.testbed import TTL, Testbed, until
from loadtest.faults.trial import NotFired
from loadtest.judge.run import Cell
from loadtest.stack.client import Strategy

#: Seconds over which the buyers of a rush start, faster than they can be served with a hold; and
#: seconds over which its disturbances start.
COME_WITHIN = 1.2
DISTURB_WITHIN = 1.3
#: Seconds after the last disturbance for everybody to have a final answer.
DRAIN_TIMEOUT = 60.0
#: Why a rush shows nothing.
NOTHING = "no disturbance was seen to happen"


class Chaos(Fault):
    """Whatever disturbs a rush: anybody's lock may be taken away."""

    name = "chaos"
    title = "random faults at random times"
    takes_the_lock = True
    two_servers = True

    def prove(self) -> str:
        raise NotFired(NOTHING)


@dataclass
class Rush:
    """One rush: its plan, and the outcome of its disturbances.

    hold_ms  milliseconds that each purchase spends between its check and its decrement
    seen     by name: by what a disturbance was seen to happen
    errors   what a disturbance raised that is no NotFired
    cells    its sales, judged
    """

    number: int
    seed: int
    locks: Sequence[str]
    chosen: Sequence[Disturbance]
    hold_ms: int
    seen: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    seconds: float = 0.0

    def as_summary(self) -> dict[str, object]:
        """Its line in `summary.json`."""
        return {
            "rush": self.number,
            "seed": self.seed,
            "hold_ms": self.hold_ms,
            "disturbed": [one.name for one in self.chosen],
            "proven": self.seen,
            "seconds": self.seconds,
        }


def play(testbed: Testbed, rush: Rush, strategies: Mapping[str, Strategy]) -> None:
    """Make the rush, and judge each of its sales. A rush in which no disturbance was seen to
    happen shows nothing: its sales are `unknown`, unless they are oversold."""
    chance, fault = Random(rush.seed), Chaos(testbed)
    testbed.new_events()  # those of the rushes before this one
    for lock in rush.locks:
        fault.tries(strategies[lock], f"r{rush.number}_")
    buyers = []
    for trial in fault.trials:
        trial.open()
        for number in range(BUYERS):
            buyers.append(trial.buyer(f"buyer-{number:02}", hold_ms=rush.hold_ms))
    shops = [testbed.shop(node) for node in range(2)]
    chance.shuffle(buyers)
    begun = time.monotonic()
    with ThreadPoolExecutor(max(1, len(rush.chosen))) as pool:
        on = {one.on: threading.Lock() for one in rush.chosen if one.on}
        for one in rush.chosen:
            pool.submit(disturb, testbed, rush, one, on, Random(chance.getrandbits(32)))
        for place, buyer in enumerate(buyers):
            time.sleep(max(0.0, begun + COME_WITHIN * place / len(buyers) - time.monotonic()))
            buyer.start(*chance.sample(shops, 2))
    testbed.record_fault("chaos", "ok", "heal", "healed")
    if not until(lambda: all(buyer.answered.is_set() for buyer in buyers), DRAIN_TIMEOUT):
        for buyer in buyers:
            buyer.give_up()
    until(lambda: not any(trial.orphans() for trial in fault.trials), TTL + 0.5)
    for trial in fault.trials if not rush.seen else ():
        trial.miss(NOTHING)
    evidence = "; ".join(f"{name}: {seen}" for name, seen in rush.seen.items())
    rush.cells = judged(fault, evidence, left=())
    excused = {"overlap"} if any(one.takes_the_lock for one in rush.chosen) else set()
    for cell in rush.cells:  # every finding is wrong, but two holders where a lock may be taken
        cell["wrong"] = sorted(set(cell["violations"]) - excused)
        cell["as_expected"] = cell["verdict"] == "exact" and not cell["wrong"]
        cell["hold_ms"], cell["round"] = rush.hold_ms, rush.number
    rush.seconds = round(time.monotonic() - begun, 2)


def disturb(
    testbed: Testbed,
    rush: Rush,
    disturbance: Disturbance,
    on: Mapping[str, threading.Lock],
    chance: Random,
) -> None:
    """Make it at a random time. Those that need the same servers wait for each other; the others
    overlap."""
    time.sleep(chance.uniform(0, DISTURB_WITHIN))
    # A failure is recorded as `info`: the other disturbances of the rush may have happened.
    with on.get(disturbance.on) or nullcontext():
        testbed.record_fault("chaos", "invoke", "fire", disturbance.name)
        kind = "info"
        try:
            what = rush.seen[disturbance.name] = disturbance.make(testbed, chance)
            kind = "ok"
        except Exception as error:
            what = reason(error)
            if not isinstance(error, NotFired):
                testbed.log.write(traceback.format_exc().encode())
                rush.errors.append(what)
    testbed.record_fault("chaos", kind, "prove", f"{disturbance.name}: {what}")
