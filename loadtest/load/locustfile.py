"""Sustained sales: started by `python -m loadtest load`, which writes the plan that it reads.

    locust -f loadtest/load/locustfile.py --headless --plan plan.json Client

`Client` is the closed model, `Arrivals` the open one. In the closed model a client that waits for
its answer sends nothing meanwhile: a shop that stalls is asked less, and the buyers who would have
come in that time are missing from the figures (coordinated omission). The run ends by itself.
"""

from __future__ import annotations

import json
import os
import time
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import gevent
from gevent.pool import Pool
from locust import FastHttpUser, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.runners import STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner

from loadtest.judge.intervals import Request
from loadtest.judge.verdict import ASK_AGAIN
from loadtest.load import cpu
from loadtest.load.plan import CONSTANT, Plan, read
from loadtest.rush import messages
from loadtest.stack.client import Shop
from loadtest.target.answer import CORRECT, Answer, pause_after
from loadtest.target.ours import OurShop
from servers.loopback import ask_loopback_directly

#: Seconds between two looks at whether all is sold.
EVERY = 0.25
#: What was bought from this process: product, client, when it was to be sent, and the requests.
purchases: list[tuple[int, int, float, list[Request]]] = []
turned_away: list[float] = []

ask_loopback_directly()


@cache
def plan_in(path: str) -> Plan:
    return read(Path(path))


class Buying(FastHttpUser):
    """Buys as the plan says."""

    abstract = True
    network_timeout = 45.0  # longer than the shop's own wait for a lock
    connection_timeout = 10.0
    count = 0

    def __init__(self, environment: Environment) -> None:
        options: Any = environment.parsed_options
        self.plan = plan = plan_in(options.plan)
        runner: Any = environment.runner
        self.who = Buying.count * plan.shares + max(0, runner.worker_index)
        Buying.count += 1
        self.bought = 0
        self.chance = Random(f"{plan.seed}/{self.who}")
        self.shares = [1 / rank**plan.skew for rank in range(1, plan.products + 1)]  # Zipf's
        self.shop = OurShop(Shop(plan.hosts[0]), lock=plan.lock, product="")
        super().__init__(environment)

    def purchase(self, host: str, intended: float) -> None:
        """Buy one unit; ask again with the same key until an answer is final."""
        (product,) = self.chance.choices(range(self.plan.products), self.shares)
        name = f"c{self.who}-{self.bought}"
        self.bought += 1
        form = {"lock": self.plan.lock, "product": self.plan.names[product], "buyer": name}
        form |= {"sale": str(self.plan.sales[product]), "hold_ms": str(self.plan.hold_ms)}
        asked: list[Request] = []
        purchases.append((product, self.who, intended, asked))
        while True:
            asked.append(Request(f"{self.plan.id}/{name}", time.monotonic_ns()))
            answer = self._ask(host, form, asked[-1])
            if answer.outcome not in ASK_AGAIN or not self.goes_on():
                return
            gevent.sleep(pause_after(answer))

    def _ask(self, host: str, form: dict[str, str], request: Request) -> Answer:
        """Send the purchase once. Locust counts what a correct shop answers as a success, each
        outcome by itself."""
        with self.client.post(
            f"{host}/buy",
            data=form,
            headers={"Idempotency-Key": request.attempt},
            catch_response=True,
        ) as response:
            answer = self.shop.read(response)
            said = {"order": answer.order, "error": answer.why, **answer.body}
            request.answer(answer.outcome, said)
            response.request_meta["name"] = f"POST /buy [{self.plan.lock}] {answer.outcome}"
            if answer.outcome in CORRECT:
                response.success()
            else:
                response.failure(f"{response.status_code} {answer.outcome}")
        return answer

    def goes_on(self) -> bool:
        """Whether the run does: after its end nobody asks again."""
        runner: Any = self.environment.runner
        return runner.state in (STATE_RUNNING, STATE_SPAWNING)


class Client(Buying):
    """The closed model: buys, waits for the answer, and buys again."""

    @task
    def buy(self) -> None:
        self.purchase(self.plan.hosts[self.who % len(self.plan.hosts)], time.monotonic())


class Arrivals(Buying):
    """The open model: starts a purchase at each arrival, each on a connection that is free."""

    concurrency = 2_000

    def on_start(self) -> None:
        self.pool = Pool(-(-self.plan.cap // self.plan.shares))
        self.at = time.monotonic()
        self.between = self.plan.shares / self.plan.arrivals_per_second

    @task
    def arrive(self) -> None:
        is_even = self.plan.arrivals == CONSTANT
        self.at += self.between if is_even else self.chance.expovariate(1 / self.between)
        gevent.sleep(max(0.0, self.at - time.monotonic()))
        if self.pool.full():
            turned_away.append(self.at)  # such a run did not measure its rate
            return
        host = self.plan.hosts[self.bought % len(self.plan.hosts)]
        self.pool.spawn(self.purchase, host, self.at)

    def on_stop(self) -> None:
        self.pool.join()
        super().on_stop()


@events.init_command_line_parser.add_listener
def add_arguments(parser: LocustArgumentParser) -> None:
    parser.add_argument("--plan", required=True, include_in_web_ui=False, help="What to do")


@events.init.add_listener
def set_up(environment: Environment, **_: Any) -> None:
    if not isinstance(environment.runner, WorkerRunner):
        start = partial(gevent.spawn, measure, environment)
        events.spawning_complete.add_listener(lambda **_: start())


def measure(environment: Environment) -> None:
    """Let them sell, measure, wait for the answers to all who came, and end the run."""
    runner, options = environment.runner, environment.parsed_options
    assert runner is not None
    assert options is not None
    plan = plan_in(options.plan)
    parts = {**plan.pids, "Locust": [os.getpid()]}
    gevent.sleep(plan.warm_up)
    began, before = time.monotonic(), {part: cpu.seconds(pids) for part, pids in parts.items()}
    sold = runner.stats.get(f"POST /buy [{plan.lock}] sold", "POST")
    while time.monotonic() < began + plan.seconds:
        gevent.sleep(min(EVERY, began + plan.seconds - time.monotonic()))
        sold = runner.stats.get(f"POST /buy [{plan.lock}] sold", "POST")
        if sold.num_requests >= plan.stock * plan.products:
            break  # Locust's workers say it every few seconds: the figures end with the last unit
    ended, after = time.monotonic(), {part: cpu.seconds(pids) for part, pids in parts.items()}
    used = {
        part: None if (now := after[part]) is None or (then := before[part]) is None else now - then
        for part in parts
    }
    is_busy = runner.cpu_warning_emitted or runner.worker_cpu_warning_emitted
    runner.stop()
    found = {"begin": began, "end": ended, "cpu": used, "locust_is_busy": is_busy}
    Path(options.plan).with_name("window.json").write_text(json.dumps(found))
    runner.quit()


@events.test_stop.add_listener
def write_purchases(environment: Environment, **_: Any) -> None:
    """What was bought from this process, once all its users have their answers."""
    if isinstance(environment.runner, MasterRunner):
        return
    options: Any = environment.parsed_options
    found = [
        [product, who, intended, [messages.packed(one) for one in asked]]
        for product, who, intended, asked in purchases
    ]
    path = Path(options.plan).with_name(f"purchases-{os.getpid()}.json")
    path.write_text(json.dumps({"purchases": found, "turned_away": len(turned_away)}))
