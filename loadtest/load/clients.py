"""Sustained sales: started by `python -m loadtest load`, which writes the plan that it reads.

    LOAD_PLAN=plan.json locust -f loadtest/load/clients.py --headless Client

`Client` is the closed model, `Arrivals` the open one. In the closed model a client that waits for
its answer sends nothing meanwhile: a shop that stalls is asked less, and the buyers who would have
come in that time are missing from the figures (coordinated omission). The run ends by itself.
"""

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import gevent
import psutil
from gevent.pool import Pool
from locust import FastHttpUser, events, task
from locust.env import Environment
from locust.runners import STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner

from loadtest.judge.intervals import Request, values
from loadtest.judge.verdict import ASK_AGAIN
from loadtest.load.figures import CONSTANT, Plan
from loadtest.stack.client import Shop
from loadtest.stack.node import family
from loadtest.target.answer import Answer
from loadtest.target.ours import OurShop
from servers.loopback import ask_loopback_directly

FILE = Path(os.environ["LOAD_PLAN"])
PLAN = Plan(**json.loads(FILE.read_text()))
SHOP = OurShop(Shop(PLAN.hosts[0]), lock=PLAN.lock, product="")
SOLD = f"POST /buy [{PLAN.lock}] sold"
#: Seconds between two looks at whether all is sold.
EVERY = 0.25
#: What was asked from this process, by product.
asked: dict[str, list[Request]] = defaultdict(list)
turned_away: list[float] = []

ask_loopback_directly()


class PlannedBuyer(FastHttpUser):
    """Buys as the plan says."""

    abstract = True
    network_timeout = 45.0  # longer than the shop's own wait for a lock
    connection_timeout = 10.0
    count = 0

    def __init__(self, environment: Environment) -> None:
        runner: Any = environment.runner
        self.who = PlannedBuyer.count * PLAN.locust_workers + max(0, runner.worker_index)
        PlannedBuyer.count += 1
        self.bought = 0
        self.chance = Random(self.who)
        self.weights = [1 / rank**PLAN.skew for rank in range(1, PLAN.products + 1)]  # Zipf's
        super().__init__(environment)

    @property
    def goes_on(self) -> bool:
        """Whether the run has not ended."""
        runner: Any = self.environment.runner
        return runner.state in (STATE_RUNNING, STATE_SPAWNING)

    def purchase(self, host: str, intended: float) -> None:
        """Buy one unit; ask again with the same key until an answer is final.

        intended  when it was to be sent, in monotonic seconds: the wait of the buyer begins then
        """
        (product,) = self.chance.choices(list(PLAN.sales), self.weights)
        name = f"c{self.who}-{self.bought}"
        self.bought += 1
        form = {"lock": PLAN.lock, "product": product, "buyer": name}
        form |= {"sale": str(PLAN.sales[product]), "hold_ms": str(PLAN.hold_ms)}
        request = Request(f"{PLAN.id}/{name}", round(intended * 1e9))
        while True:
            asked[product].append(request)
            answer = self._ask(host, form, request)
            if answer.outcome not in ASK_AGAIN or not self.goes_on:  # after the end nobody does
                return
            gevent.sleep(answer.pause())
            request = Request(request.attempt, time.monotonic_ns())

    def _ask(self, host: str, form: dict[str, str], request: Request) -> Answer:
        """Send the purchase once. Locust counts what a correct shop answers as a success, each
        outcome by itself."""
        headers = {"Idempotency-Key": request.attempt}
        with self.client.post(
            f"{host}/buy", data=form, headers=headers, catch_response=True
        ) as response:
            answer = SHOP.read(response)
            answer.record(request)
            response.request_meta["name"] = f"POST /buy [{PLAN.lock}] {answer.outcome}"
            answer.count(response)
        return answer


class Client(PlannedBuyer):
    """The closed model: buys, waits for the answer, and buys again."""

    @task
    def buy(self) -> None:
        # All its purchases are one task. Locust kills a user that it finds between two tasks, and
        # the kill comes when the next one has begun: its answer would be lost.
        while self.goes_on:
            self.purchase(PLAN.hosts[self.who % len(PLAN.hosts)], time.monotonic())


class Arrivals(PlannedBuyer):
    """The open model: starts a purchase at each arrival, each on a connection that is free."""

    concurrency = 2_000

    def on_start(self) -> None:
        self.pool = Pool(-(-PLAN.cap // PLAN.locust_workers))
        self.at = time.monotonic()
        self.between = PLAN.locust_workers / PLAN.arrivals_per_second

    @task
    def arrive(self) -> None:
        is_even = PLAN.arrivals == CONSTANT
        self.at += self.between if is_even else self.chance.expovariate(1 / self.between)
        gevent.sleep(max(0.0, self.at - time.monotonic()))
        if self.pool.full():
            turned_away.append(self.at)  # such a run did not measure its rate
            return
        self.pool.spawn(self.purchase, PLAN.hosts[self.bought % len(PLAN.hosts)], self.at)

    def on_stop(self) -> None:
        self.pool.join()
        super().on_stop()


@events.init.add_listener
def set_up(environment: Environment, **_: Any) -> None:
    if not isinstance(environment.runner, WorkerRunner):
        environment.events.spawning_complete.add_listener(
            lambda **_: gevent.spawn(measure, environment.runner)
        )


def measure(runner: Any) -> None:
    """Let them sell, measure, wait for the answers to all who came, and end the run."""
    parts = {**PLAN.pids, "Locust": [os.getpid()]}
    gevent.sleep(PLAN.warm_up)
    began, before = time.monotonic(), [cpu_seconds(pids) for pids in parts.values()]
    while (left := began + PLAN.seconds - time.monotonic()) > 0:
        gevent.sleep(min(EVERY, left))
        if runner.stats.get(SOLD, "POST").num_requests >= PLAN.stock * PLAN.products:
            break  # Locust's workers say it every few seconds: the figures end with the last unit
    ended, after = time.monotonic(), [cpu_seconds(pids) for pids in parts.values()]
    is_busy = runner.cpu_warning_emitted or runner.worker_cpu_warning_emitted
    runner.stop()
    cpu = {
        part: None if then is None or now is None else now - then
        for part, then, now in zip(parts, before, after, strict=True)
    }
    found = {"begin": began, "end": ended, "cpu": cpu, "is_busy": is_busy}
    FILE.with_name("window.json").write_text(json.dumps(found))
    runner.quit()


def cpu_seconds(pids: Sequence[int]) -> float | None:
    """Processor seconds so far of these processes, their descendants, and those of them that ended.

    None where they cannot be read, or there is no process: unknown, and never 0. Only Linux keeps
    the time of children that have ended, and shows others' processes.
    """
    if not (pids and sys.platform.startswith("linux")):
        return None
    try:
        return float(sum(sum(one.cpu_times()[:4]) for pid in pids for one in family(pid)))
    except psutil.Error:
        return None


@events.test_stop.add_listener
def write(environment: Environment, **_: Any) -> None:
    """What was asked from this process, once all its users have their answers."""
    if isinstance(environment.runner, MasterRunner):
        return
    requests = {product: list(map(values, found)) for product, found in asked.items()}
    found = {"requests": requests, "turned_away": len(turned_away)}
    FILE.with_name(f"buyers-{os.getpid()}.json").write_text(json.dumps(found))
