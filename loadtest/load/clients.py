"""The locustfile of sustained sales, which `python -m loadtest load` starts with a plan.

    LOAD_PLAN=plan.json locust -f loadtest/load/clients.py --headless Client

`Client` is the closed model, `Arrivals` the open one. In the closed model a client sends nothing
while it waits for its answer. So a shop that stalls gets fewer requests, and the buyers who would
have come in that time are missing from the figures (coordinated omission). The run ends by itself.
"""

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from math import ceil
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
from servers.loopback import exempt_loopback_from_proxies

PLAN_FILE = Path(os.environ["LOAD_PLAN"])
PLAN = LoadPlan(**json.loads(PLAN_FILE.read_text()))
#: Reads the answers; its host and its product are not used.
SHOP = OurShop(Shop(PLAN.hosts[0]), lock=PLAN.lock, product="")
#: The name under which Locust counts the requests that sold a unit.
SOLD_REQUEST_NAME = f"POST /buy [{PLAN.lock}] sold"
#: Time between two checks whether all units are sold.
POLL_INTERVAL_SECONDS = 0.25
#: The requests of this process, by product.
requests_by_product: dict[str, list[Request]] = defaultdict(list)
#: The times of arrivals that send no request, because MAX_CLIENTS buyers wait for answers already.
turned_away_arrivals: list[float] = []

exempt_loopback_from_proxies()


class PlannedBuyer(FastHttpUser):
    """A user of Locust that buys random products under the plan's strategy.

    The first products are the most likely ones, according to the plan's skew.
    """

    abstract = True
    network_timeout = 45.0  # seconds; longer than the shop's own wait for a lock
    connection_timeout = 10.0
    user_count = 0  # the number of users created in this process

    def __init__(self, environment: Environment) -> None:
        runner: Any = environment.runner
        # The number is unique in all processes: with 3 workers, the users of the first one have the
        # numbers 0, 3, 6, ...
        self.number = PlannedBuyer.user_count * PLAN.locust_workers + max(0, runner.worker_index)
        PlannedBuyer.user_count += 1
        self.purchase_count = 0
        self.random = Random(self.number)
        # Zipf's law: the product of rank n is bought n**skew times less often than the first.
        self.product_weights = [1 / rank**PLAN.skew for rank in range(1, PLAN.products + 1)]
        super().__init__(environment)

    @property
    def is_running(self) -> bool:
        """True until the run ends. After that, no request is repeated."""
        runner: Any = self.environment.runner
        return runner.state in (STATE_RUNNING, STATE_SPAWNING)

    def buy_with_retries(self, host: str, due_at: float) -> None:
        """Buy one unit. Repeat the request after each of RETRIED_OUTCOMES, until the run ends.

        due_at  the monotonic time at which the purchase was due. It is recorded as the time at
                which the first request was sent, so that a delay before it counts as waiting
        """
        (product,) = self.random.choices(list(PLAN.sales), self.product_weights)
        name = f"c{self.number}-{self.purchase_count}"
        self.purchase_count += 1
        form = {
            "lock": PLAN.lock,
            "product": product,
            "buyer": name,
            "sale": str(PLAN.sales[product]),
            "hold_ms": str(PLAN.hold_ms),
        }
        request = Request(f"{PLAN.id}/{name}", round(due_at * 1e9))
        while True:
            requests_by_product[product].append(request)
            answer = self._send_purchase(host, form, request)
            if answer.outcome not in RETRIED_OUTCOMES or not self.is_running:
                return
            gevent.sleep(answer.choose_retry_delay())
            request = Request(request.attempt, time.monotonic_ns())

    def _send_purchase(self, host: str, form: dict[str, str], request: Request) -> Answer:
        """Send the purchase once, and record its answer.

        Locust's statistics have a separate row for each outcome. Every answer that a correct shop
        may give counts as a success.
        """
        headers = {"Idempotency-Key": request.attempt}  # the same in all requests of a purchase
        with self.client.post(
            f"{host}/buy", data=form, headers=headers, catch_response=True
        ) as response:
            answer = SHOP.read(response)
            answer.record_in(request)
            response.request_meta["name"] = f"POST /buy [{PLAN.lock}] {answer.outcome}"
            answer.let_locust_count(response)
        return answer


class Client(PlannedBuyer):
    """The closed model: buys, waits for the answer, and buys again."""

    @task
    def buy(self) -> None:
        # One task makes all purchases of a client. If each purchase were a task, Locust would end
        # the client just after the client has begun its next purchase, and the answer to that
        # purchase would be lost.
        while self.is_running:
            self.buy_with_retries(PLAN.hosts[self.number % len(PLAN.hosts)], time.monotonic())


class Arrivals(PlannedBuyer):
    """The open model: one user per process starts a purchase at each arrival of a buyer."""

    concurrency = MAX_CLIENTS  # connections of this user

    def on_start(self) -> None:
        # The pool has a greenlet for each buyer who waits for an answer. Its maximum size is this
        # process's share of MAX_CLIENTS.
        self.pool = Pool(ceil(MAX_CLIENTS / PLAN.locust_workers))
        self.next_arrival_at = time.monotonic()
        self.arrivals_per_second = PLAN.arrivals_per_second / PLAN.locust_workers

    @task
    def start_next_purchase(self) -> None:
        """Wait for the next arrival of a buyer, and start a purchase without waiting for the
        answer.

        If too many buyers wait for answers already, record the arrival in `turned_away_arrivals`.
        """
        self.next_arrival_at += self.random.expovariate(self.arrivals_per_second)
        gevent.sleep(max(0.0, self.next_arrival_at - time.monotonic()))
        if self.pool.full():
            turned_away_arrivals.append(self.next_arrival_at)
            return
        host = PLAN.hosts[self.purchase_count % len(PLAN.hosts)]
        self.pool.spawn(self.buy_with_retries, host, self.next_arrival_at)

    def on_stop(self) -> None:
        self.pool.join()  # waits until all buyers in the pool have their last answers
        super().on_stop()


@events.init.add_listener
def schedule_measurement(environment: Environment, **_: Any) -> None:
    """Begin the measurement when all users are started. Do nothing in a worker."""
    if not isinstance(environment.runner, WorkerRunner):

        def begin_measurement(**_: Any) -> None:
            gevent.spawn(measure_run, environment.runner)

        environment.events.spawning_complete.add_listener(begin_measurement)


def measure_run(runner: Any) -> None:
    """Wait for the warm-up, measure the processor times, wait for the last answers, end the run.

    Writes window.json with the fields of Measurement that are not about buyers: begin, end, cpu and
    locust_is_busy.
    """
    pids_by_part = {**PLAN.pids, "Locust": [os.getpid()]}
    gevent.sleep(WARM_UP_SECONDS)
    began_at = time.monotonic()
    end_at = began_at + PLAN.seconds
    cpu_before = {part: read_cpu_seconds(pids) for part, pids in pids_by_part.items()}
    while time.monotonic() < end_at:
        seconds_left = max(0.0, end_at - time.monotonic())
        gevent.sleep(min(POLL_INTERVAL_SECONDS, seconds_left))
        if runner.stats.get(SOLD_REQUEST_NAME, "POST").num_requests >= PLAN.stock * PLAN.products:
            # All units are sold. Workers report at intervals, so this may be noticed seconds later.
            # But MeasuredWindow ends with the sale of the last unit.
            break
    ended_at = time.monotonic()
    cpu_after = {part: read_cpu_seconds(pids) for part, pids in pids_by_part.items()}
    locust_is_busy = runner.cpu_warning_emitted or runner.worker_cpu_warning_emitted
    runner.stop()  # waits for the buyers' last answers, at most --stop-timeout
    cpu: dict[str, float | None] = {}
    for part, before in cpu_before.items():
        after = cpu_after[part]
        cpu[part] = None if before is None or after is None else after - before
    window = {"begin": began_at, "end": ended_at, "cpu": cpu, "locust_is_busy": locust_is_busy}
    PLAN_FILE.with_name("window.json").write_text(json.dumps(window))
    runner.quit()


def read_cpu_seconds(pids: Sequence[int]) -> float | None:
    """Return the processor seconds of these processes and their descendants, even of ended ones.

    Return None if they cannot be read, if there is no process, or if this is not Linux. Other
    systems do not keep the time of children that have ended, or hide processes of other users.
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
    """Write the requests of this process to a file, when all its users have their answers."""
    if isinstance(environment.runner, MasterRunner):  # it has no users
        return
    packed_requests = {
        product: [fields_of_request(request) for request in requests]
        for product, requests in requests_by_product.items()
    }
    process_record = {"requests": packed_requests, "turned_away": len(turned_away_arrivals)}
    PLAN_FILE.with_name(f"buyers-{os.getpid()}.json").write_text(json.dumps(process_record))
