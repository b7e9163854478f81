"""The master's side of a load run: collects the purchases, decides what is measured, ends it.

The workers send what was bought in batches, by Locust's own messages; without workers the same
messages stay in the process. All processes are of this machine, whose monotonic clock they share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadtest.load import cpu
from loadtest.load.figures import MACHINE, Measured, Sale, Window
from loadtest.load.plan import DRAIN, Plan

#: Seconds between two batches of a worker, and between two looks at whether the run is over.
EVERY = 0.25
#: Seconds without a batch after which a worker is lost.
SILENCE = 15.0
#: Seconds at most for which buyers go on coming after the measurement, until those who came in it
#: are answered: without a queue behind them they would be served sooner than others.
COOL_DOWN = 10.0
#: The name of the part that makes the load.
LOCUST = "Locust"


class Failed(Exception):
    """The measurement failed. The message says why, and what to do."""


@dataclass
class Conductor:
    """One run.

    sleep  waits so many seconds, and lets batches come in meanwhile
    end    asks all workers to finish: what is under way gets its answer, nobody buys anything more
    """

    plan: Plan
    sleep: Callable[[float], object]
    end: Callable[[], object]
    clock: Callable[[], float] = time.monotonic
    sales: list[Sale] = field(default_factory=list)
    spawned: bool = False
    turned_away: dict[int, int] = field(default_factory=dict)
    most: dict[int, int] = field(default_factory=dict)
    heard: dict[int, float] = field(default_factory=dict)
    oldest: dict[int, float | None] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    sold_out: set[int] = field(default_factory=set)

    def take(self, batch: Mapping[str, Any]) -> None:
        """A batch of a worker."""
        worker = int(batch["worker"])
        self.heard[worker] = self.clock()
        self.turned_away[worker] = int(batch["turned_away"])
        self.most[worker] = int(batch["most"])
        self.oldest[worker] = batch["oldest"]
        new = [Sale(*one) for one in batch["sales"]]
        self.sales += new
        self.sold_out |= {one.product for one in new if one.outcome == "sold_out"}
        if batch["finished"]:
            self.finished.add(worker)

    def run(self) -> Measured:
        """Wait until all sell, measure for the plan's seconds or until nothing is left, and wait
        for the answers to all who came by then."""
        window, why, ran_out = Window(0.0, 0.0), "", False
        used: dict[str, float | None] = {}
        busy: float | None = None
        try:
            self._wait(lambda: self.spawned, 30 + self.plan.clients / 50, "clients started")
            self._watch(self.clock() + self.plan.warm_up)
            if self._is_sold_out():
                raise Failed(
                    "all was sold before the measurement began: give more --stock, or a shorter "
                    "--warm-up"
                )
            before, (_, each) = self._used(), cpu.busiest(os.getpid(), {})
            begin = self.clock()
            window = Window(begin, begin)
            self._watch(begin + self.plan.seconds)
            window, ran_out = Window(begin, self.clock()), self._is_sold_out()
            after, (most, _) = self._used(), cpu.busiest(os.getpid(), each)
            used = {part: _less(after[part], before[part]) for part in after}
            busy = None if most is None else most / window.seconds
            if any(self.turned_away.values()):
                raise Failed(
                    f"{self.plan.cap} buyers waited for an answer at a time, the most that may, "
                    "and others were turned away: lower --arrivals-per-second, or measure for "
                    "fewer --seconds"
                )
            self._cool_down(window.end)
        except Failed as error:
            why = str(error)
        try:
            self.end()
            self._wait(self._have_all_finished, DRAIN, "workers finished")
        except Failed as error:
            why = why or str(error)
        if ran_out:
            window = self._until_the_last_unit(window)
        return Measured(
            sales=self.sales,
            window=window,
            cpu=used,
            busy=busy,
            most_in_flight=sum(self.most.values()),
            turned_away=sum(self.turned_away.values()),
            why=why,
        )

    def _until_the_last_unit(self, window: Window) -> Window:
        """The window of a sale that ran out: until its last unit was sold."""
        sold = [one.answered for one in self.sales if one.outcome == "sold"]
        return Window(window.begin, min(max(sold, default=window.end), window.end), "stock")

    def _watch(self, until: float) -> None:
        """Wait until then, or until nothing is left to sell, or nobody more may come."""
        while (left := until - self.clock()) > 0:
            if self._is_sold_out() or any(self.turned_away.values()):
                return
            self._require_all()
            self.sleep(min(left, EVERY))

    def _cool_down(self, end: float) -> None:
        """Wait until all who came before `end` are answered, COOL_DOWN at most."""
        while self.clock() < end + COOL_DOWN and not self._is_sold_out():
            later = [w for w, when in self.heard.items() if when > end + EVERY]
            oldest = [self.oldest[worker] for worker in later]
            if len(later) == self.plan.shares and all(one is None or one > end for one in oldest):
                return
            self._require_all()
            self.sleep(EVERY)

    def _wait(self, is_done: Callable[[], bool], timeout: float, what: str) -> None:
        deadline = self.clock() + timeout
        while not is_done():
            self._require_all()
            if self.clock() > deadline:
                raise Failed(f"not all {what} within {timeout:.0f} s: see the log of the run")
            self.sleep(EVERY / 5)

    def _require_all(self) -> None:
        """Raises Failed if a worker is lost."""
        now = self.clock()
        for worker, when in self.heard.items():
            if worker not in self.finished and now - when > SILENCE:
                raise Failed(f"Locust's worker {worker} was lost: see the log of the run")

    def _is_sold_out(self) -> bool:
        return len(self.sold_out) == len(self.plan.products)

    def _have_all_finished(self) -> bool:
        return len(self.finished) == self.plan.shares

    def _used(self) -> dict[str, float | None]:
        """Processor seconds of each part so far."""
        parts = {part: cpu.seconds(pids) for part, pids in self.plan.pids.items()}
        return {**parts, LOCUST: cpu.seconds([os.getpid()]), MACHINE: cpu.of_machine()}


def write(found: Measured, path: Path) -> None:
    """Write a result file: whole, or not at all. Raises OSError."""
    fresh = path.with_suffix(".partial")
    text = json.dumps({**asdict(found), "sales": [list(one) for one in found.sales]})
    fresh.write_text(text)
    fresh.replace(path)


def _less(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before
