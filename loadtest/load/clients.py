"""The locustfile of sustained sales, which `python -m loadtest load` starts with a plan.

    LOAD_PLAN=plan.json locust -f loadtest/load/clients.py --headless Client

`Client` is the closed model, `Arrivals` the open one. In the closed model a client that waits for
its answer sends nothing meanwhile: a shop that stalls gets fewer requests, and the buyers who would
have come in that time are missing from the figures (coordinated omission). The run ends by itself.
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

from loadtest.judge.intervals import Request, fields_of_request
from loadtest.judge.outcomes import RETRIED_OUTCOMES
from loadtest.load.plan import MAX_CLIENTS, WARM_UP_SECONDS, LoadPlan
from loadtest.stack.client import Shop
from loadtest.stack.node import list_process_tree
from loadtest.target.answer import Answer
from loadtest.target.ours import OurShop
from servers.loopback import ask_loopback_directly

PLAN_FILE = Path(os.environ["LOAD_PLAN"])
PLAN = LoadPlan(**json.loads(PLAN_FILE.read_text()))
SHOP = OurShop(Shop(PLAN.hosts[0]), lock=PLAN.lock, product="")
SOLD = f"POST /buy [{PLAN.lock}] sold"
#: Time between two checks whether all units are sold.
POLL_INTERVAL_SECONDS = 0.25
#: The requests of this process, by product.
requests_by_product: dict[str, list[Request]] = defaultdict(list)
#: The times of the arrivals beyond MAX_CLIENTS waiting buyers, which send no request.
turned_away: list[float] = []

ask_loopback_directly()


class PlannedBuyer(FastHttpUser):
    """Buys under the plan's strategy, a product drawn with the plan's skew each time."""

    abstract = True
    network_timeout = 45.0  # longer than the shop's own wait for a lock
    connection_timeout = 10.0
    count = 0

    def __init__(self, environment: Environment) -> None:
        runner: Any = environment.runner
        self.number = PlannedBuyer.count * PLAN.locust_workers + max(0, runner.worker_index)
        PlannedBuyer.count += 1
        self.bought = 0
        self.chance = Random(self.number)
        self.weights = [1 / rank**PLAN.skew for rank in range(1, PLAN.products + 1)]  # Zipf's
        super().__init__(environment)

    @property
    def is_running(self) -> bool:
        """True until the run ends: after that no purchase is repeated."""
        runner: Any = self.environment.runner
        return runner.state in (STATE_RUNNING, STATE_SPAWNING)

    def purchase(self, host: str, intended: float) -> None:
        """Buy one unit, and repeat the request with the same key until an answer is final.

        intended  the monotonic time at which the request was due: the buyer waits from then on
        """
        (product,) = self.chance.choices(list(PLAN.sales), self.weights)
        name = f"c{self.number}-{self.bought}"
        self.bought += 1
        form = {
            "lock": PLAN.lock,
            "product": product,
            "buyer": name,
            "sale": str(PLAN.sales[product]),
            "hold_ms": str(PLAN.hold_ms),
        }
        request = Request(f"{PLAN.id}/{name}", round(intended * 1e9))
        while True:
            requests_by_product[product].append(request)
            answer = self._ask(host, form, request)
            if answer.outcome not in RETRIED_OUTCOMES or not self.is_running:
                return
            gevent.sleep(answer.retry_delay())
            request = Request(request.attempt, time.monotonic_ns())

    def _ask(self, host: str, form: dict[str, str], request: Request) -> Answer:
        """Send the purchase once, and record its answer.

        Locust counts each outcome under a name of its own. Every answer that a correct shop may
        give counts as a success.
        """
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
        # All purchases of a client are one task. Locust decides between two tasks to kill a user,
        # but the kill comes after the next task has begun, and its answer would be lost.
        while self.is_running:
            self.purchase(PLAN.hosts[self.number % len(PLAN.hosts)], time.monotonic())


class Arrivals(PlannedBuyer):
    """The open model: starts a purchase at each arrival, on a free connection."""

    concurrency = MAX_CLIENTS

    def on_start(self) -> None:
        self.pool = Pool(-(-MAX_CLIENTS // PLAN.locust_workers))
        self.next_arrival = time.monotonic()
        self.mean_interval = PLAN.locust_workers / PLAN.arrivals_per_second

    @task
    def arrive(self) -> None:
        self.next_arrival += self.chance.expovariate(1 / self.mean_interval)
        gevent.sleep(max(0.0, self.next_arrival - time.monotonic()))
        if self.pool.full():
            turned_away.append(self.next_arrival)  # so the run did not reach its rate
            return
        self.pool.spawn(self.purchase, PLAN.hosts[self.bought % len(PLAN.hosts)], self.next_arrival)

    def on_stop(self) -> None:
        self.pool.join()
        super().on_stop()


@events.init.add_listener
def set_up(environment: Environment, **_: Any) -> None:
    """Start the measurement once all users are there; the master, or the only process, does it."""
    if not isinstance(environment.runner, WorkerRunner):

        def begin_measurement(**_: Any) -> None:
            gevent.spawn(measure, environment.runner)

        environment.events.spawning_complete.add_listener(begin_measurement)


def measure(runner: Any) -> None:
    """Wait for the warm-up, measure, wait for the last answers, and end the run."""
    parts = {**PLAN.pids, "Locust": [os.getpid()]}
    gevent.sleep(WARM_UP_SECONDS)
    began_at = time.monotonic()
    end_at = began_at + PLAN.seconds
    cpu_before = [cpu_seconds(pids) for pids in parts.values()]
    while time.monotonic() < end_at:
        seconds_left = max(0.0, end_at - time.monotonic())
        gevent.sleep(min(POLL_INTERVAL_SECONDS, seconds_left))
        if runner.stats.get(SOLD, "POST").num_requests >= PLAN.stock * PLAN.products:
            # Workers report at intervals, so this may be noticed seconds late. The figures are cut
            # off at the sale of the last unit.
            break
    ended_at = time.monotonic()
    cpu_after = [cpu_seconds(pids) for pids in parts.values()]
    locust_is_busy = runner.cpu_warning_emitted or runner.worker_cpu_warning_emitted
    runner.stop()
    cpu: dict[str, float | None] = {}
    for part, before, after in zip(parts, cpu_before, cpu_after, strict=True):
        cpu[part] = None
        if before is not None and after is not None:
            cpu[part] = after - before
    window = {"begin": began_at, "end": ended_at, "cpu": cpu, "locust_is_busy": locust_is_busy}
    PLAN_FILE.with_name("window.json").write_text(json.dumps(window))
    runner.quit()


def cpu_seconds(pids: Sequence[int]) -> float | None:
    """Return the processor seconds of these processes and their descendants, ended ones included.

    None if they cannot be read, or if there is no process. Only Linux keeps the time of children
    that have ended, and shows the processes of other users.
    """
    if not (pids and sys.platform.startswith("linux")):
        return None
    try:
        seconds = 0.0
        for pid in pids:
            for process in list_process_tree(pid):
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
        return seconds
    except psutil.Error:
        return None


@events.test_stop.add_listener
def write_requests(environment: Environment, **_: Any) -> None:
    """Write the requests of this process, once all its users have their answers."""
    if isinstance(environment.runner, MasterRunner):
        return
    packed_requests = {
        product: [fields_of_request(request) for request in requests]
        for product, requests in requests_by_product.items()
    }
    share = {"requests": packed_requests, "turned_away": len(turned_away)}
    PLAN_FILE.with_name(f"buyers-{os.getpid()}.json").write_text(json.dumps(share))
