"""Sustained sales: started by `python -m loadtest load`, which writes the plan that it reads.

    locust -f loadtest/load/locustfile.py --headless --plan plan.json --result result.json Client

`Client` is the closed model, `Arrivals` the open one. The run ends by itself.
"""

from __future__ import annotations

import logging
import random
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import gevent
from locust import FastHttpUser, User, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadtest.load.arrivals import OpenModel, offsets
from loadtest.load.buying import Purchases
from loadtest.load.conductor import EVERY, Conductor, write
from loadtest.load.figures import Sale
from loadtest.load.plan import DRAIN, LOOPBACK, Plan, read
from loadtest.load.products import Chooser, zipf
from loadtest.rush.visit import stay_at_home
from servers.loopback import ask_loopback_directly

logger = logging.getLogger("loadtest")

#: Seconds that a buyer waits before asking again, at random, so that not all ask at once.
PAUSE = (0.2, 0.6)
#: Seconds before the end of the drain at which a buyer asks no more: a request may take so long.
LAST_REQUEST = 50.0
SALES, END = "sales", "end"

ask_loopback_directly()


class Share:
    """This process's part of the load, and what it has not sent to the master yet."""

    def __init__(self, plan: Plan, worker: int) -> None:
        self.plan = plan
        self.worker = worker
        self.clients = 0
        self.new: list[Sale] = []
        self.under_way: dict[tuple[int, int], float] = {}  # when each purchase was to be sent
        self.ending_since: float | None = None
        self.open = OpenModel(
            cap=-(-plan.cap // plan.shares),
            clock=time.monotonic,
            sleep=gevent.sleep,
            spawn=gevent.spawn,
        )
        self.purchases = Purchases(
            plan, pause=lambda: gevent.sleep(random.uniform(*PAUSE)), over=self.is_too_late
        )

    def is_ending(self) -> bool:
        return self.ending_since is not None

    def is_too_late(self) -> bool:
        since = self.ending_since
        return since is not None and time.monotonic() > since + DRAIN - LAST_REQUEST

    def next_client(self) -> int:
        """A number that no other client of any worker has."""
        self.clients += 1
        return (self.clients - 1) * self.plan.shares + self.worker

    def chooser(self, who: int) -> Chooser:
        """Draws products for a client: the same ones in each run of this seed."""
        plan = self.plan
        return Chooser(zipf(len(plan.products), plan.skew), Random(f"{plan.seed}/{who}"))

    def buy(
        self, client: Any, product: int, who: int, number: int, intended: float | None = None
    ) -> None:
        began = time.monotonic() if intended is None else intended
        self.under_way[who, number] = began
        try:
            sale = self.purchases.buy(client, product, who, number, intended)
            self.new.append(sale)  # to the present list: a batch may have taken the one before it
        finally:
            del self.under_way[who, number]

    def batch(self) -> dict[str, Any]:
        """What happened since the last batch."""
        finished = self.is_ending() and not self.under_way and self.open.in_flight == 0
        new, self.new = self.new, []
        return {
            "worker": self.worker,
            "sales": [list(one) for one in new],
            "turned_away": self.open.turned_away,
            "oldest": min(self.under_way.values(), default=None),
            "most": self.open.most if self.plan.is_open else self.clients,
            "finished": finished,
        }


#: What this process does of the load; and, of the master or of a process without workers, the run.
share: Share | None = None
conductor: Conductor | None = None


class Client(FastHttpUser):
    """The closed model: buys, waits for the answer, and buys again."""

    network_timeout = 45.0  # longer than the shop's own wait for a lock
    connection_timeout = 10.0

    def __init__(self, environment: Environment) -> None:
        assert share is not None
        self.who = share.next_client()
        self.host = share.plan.hosts[self.who % len(share.plan.hosts)]
        super().__init__(environment)
        stay_at_home(self.client, set(LOOPBACK))

    @task
    def keep_buying(self) -> None:
        assert share is not None
        self.client.get("/healthz", name="GET /healthz [warm-up]")
        choose, number = share.chooser(self.who), 0
        while not share.is_ending():
            share.buy(self.client, choose(), self.who, number)
            number += 1
        gevent.sleep(DRAIN * 2)  # until Locust ends: a task that returns would begin again


class Arrivals(User):
    """The open model: starts a purchase at each arrival, each on a connection that is free."""

    @task
    def keep_arriving(self) -> None:
        assert share is not None
        plan, worker = share.plan, share.worker
        choose = share.chooser(worker)
        free: dict[int, list[Client]] = {}

        def buy(number: int, intended: float) -> None:
            assert share is not None
            clients = free.setdefault(number % len(plan.hosts), [])
            client = clients.pop() if clients else self._connection(number)
            share.buy(client.client, choose(), worker, number, intended)
            clients.append(client)

        chance = Random(f"{plan.seed}/arrivals/{worker}")
        times = offsets(
            plan.arrivals_per_second, plan.arrivals, chance, share=worker, shares=plan.shares
        )
        share.open.run(time.monotonic(), times, buy, share.is_ending)
        gevent.sleep(DRAIN * 2)

    def _connection(self, number: int) -> Client:
        """A new connection, to the node of this arrival."""
        assert share is not None
        one = Client(self.environment)
        one.client.base_url = share.plan.hosts[number % len(share.plan.hosts)]
        return one


@events.init_command_line_parser.add_listener
def add_arguments(parser: LocustArgumentParser) -> None:
    parser.add_argument("--plan", required=True, include_in_web_ui=False, help="What to do")
    parser.add_argument("--result", required=True, include_in_web_ui=False, help="Where it goes")


@events.init.add_listener
def set_up(environment: Environment, runner: Any, **_: Any) -> None:
    global conductor
    options = environment.parsed_options
    assert options is not None
    plan = read(Path(options.plan))
    if not isinstance(runner, WorkerRunner):
        conductor = Conductor(plan, gevent.sleep, partial(runner.send_message, END, {}))
        runner.register_message(SALES, _take)
    if not isinstance(runner, MasterRunner):
        runner.register_message(END, _end)


def _take(environment: Environment, msg: Any, **_: Any) -> None:
    assert conductor is not None
    conductor.take(msg.data)


def _end(environment: Environment, msg: Any, **_: Any) -> None:
    assert share is not None
    share.ending_since = time.monotonic()


@events.spawning_complete.add_listener
def all_are_there(user_count: int, **_: Any) -> None:
    if conductor is not None:
        conductor.spawned = True


@events.test_start.add_listener
def begin(environment: Environment, **_: Any) -> None:
    global share
    runner: Any = environment.runner
    options = environment.parsed_options
    assert options is not None
    if not isinstance(runner, MasterRunner):
        share = Share(read(Path(options.plan)), max(0, runner.worker_index))
        gevent.spawn(_report, runner, share)
    if conductor is not None:
        gevent.spawn(_conduct, runner, conductor, Path(options.result))


def _report(runner: Any, share: Share) -> None:
    """Send what was bought to the master, until all is."""
    while True:
        batch = share.batch()
        runner.send_message(SALES, batch)
        if batch["finished"]:
            return
        gevent.sleep(EVERY)


def _conduct(runner: Any, conductor: Conductor, path: Path) -> None:
    try:
        write(conductor.run(), path)
    except Exception:  # any: if this ended here, the run would never end
        logger.exception("the load was not measured")
    runner.quit()
