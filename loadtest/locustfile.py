"""200 buyers against 100 units, released at the same instant; each buys once.

    locust --headless --lock none      # oversells
    locust --headless --lock redis     # sells 100
    locust                             # the same from the web UI, http://127.0.0.1:8089
    locust --processes 4 --users 5000 --headless --lock redis    # from four processes

Works against any running shop of this project (--host); needs its SHOP_RESTOCK_TOKEN to open a
sale. Against any other shop with --target my_shop.py (docs/your-shop.md). The run ends by itself.
Exit code by verdict: 0 exact, 3 oversold, 4 undersold, 6 unknown, which it is until there is
another verdict; 2 for a target that cannot be used.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

import gevent
from gevent.event import Event
from locust import FastHttpUser, events, task
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadtest.judge.verdict import EXIT_CODES, Reply
from loadtest.rush import web_ui
from loadtest.rush.answers import keep_open, report, require_good, stay_at_home, take_off
from loadtest.rush.choice import hosts, options_of, permissions, shared, take, target_of
from loadtest.rush.connections import watch
from loadtest.rush.control import Control
from loadtest.rush.crowd import Crowd
from loadtest.rush.gathering import Local
from loadtest.rush.links import MasterLink, WorkerLink, wait_longer_for_heartbeats
from loadtest.rush.master import Workers
from loadtest.rush.measure import Interval
from loadtest.rush.options import add_arguments
from loadtest.rush.outcome import last_run, runs
from loadtest.rush.purchase import Over, Purchase
from loadtest.rush.reading import read
from loadtest.rush.worker import Worker
from loadtest.target import Answer, Target
from loadtest.target import Buyer as Person
from loadtest.target.answer import CORRECT, pause_after
from loadtest.target.errors import TargetError, call
from loadtest.target.hosts import name_of
from servers.loopback import ask_loopback_directly

logger = logging.getLogger("loadtest")

#: Who has the buyers of this process.
here: Local | Worker | Workers = Local()

ask_loopback_directly()
wait_longer_for_heartbeats()
events.init_command_line_parser.add_listener(add_arguments)


class Buyer(FastHttpUser):
    """Does what comes before, waits at the barrier, buys once, and stays until the rush is over."""

    network_timeout = 45.0  # longer than the shop's own wait for a lock
    connection_timeout = 10.0
    count = 0

    def __init__(self, environment: Environment) -> None:
        place = Buyer.count
        Buyer.count += 1
        crowd = here.crowd
        #: None where the rush has no such buyer: somebody pressed w in Locust's terminal.
        self.number = crowd.share.number(place) if crowd else None
        nodes = hosts(environment)
        self.host = nodes[(self.number or 0) % len(nodes)]
        super().__init__(environment)
        stay_at_home(self.client, {name_of(node) for node in nodes})
        self.responses = keep_open(self.client)
        self.purchase: Purchase | None = None
        watch(self.client, self._ready)

    @task
    def take_part(self) -> None:
        """One rush. The task ends with the next one: a user that ends would be replaced."""
        crowd = here.crowd
        if crowd is None or self.number is None:
            Event().wait()
            return
        person = Person(self.number, crowd.key(self.number), self.client)
        try:
            self._prepare(crowd, person)
            self._buy(crowd, person)
        except TargetError as error:
            crowd.break_off(error)
        except Over:
            pass
        crowd.replaced.wait()

    def _ready(self) -> None:
        """A request is built, and not sent yet."""
        if self.purchase is not None:
            self.purchase.ready()

    def _prepare(self, crowd: Crowd, person: Person) -> None:
        """All that comes before the barrier. Raises TargetError."""
        self.responses.clear()
        try:
            call(crowd.target, crowd.target.prepare, person)
        finally:
            require_good(self.responses)  # an answer that is an error says more than what follows

    def _buy(self, crowd: Crowd, person: Person) -> None:
        """Wait at the barrier, and ask until an answer is final or the deadline is over. Raises
        TargetError, Over."""
        self.purchase = Purchase(crowd, person.key)
        answer = self._ask(self.purchase, person)
        answered = time.monotonic()
        while crowd.asks_again(answer):
            gevent.sleep(pause_after(answer))
            answer = self._ask(self.purchase, person)
        reply = Reply(person.key, answer.outcome, answer.order)  # type: ignore[arg-type]
        assert self.purchase.first is not None
        sent = self.purchase.first.sent / 1e9
        crowd.leave(reply, Interval(sent, answered, time.monotonic()))

    def _ask(self, purchase: Purchase, person: Person) -> Answer:
        """Send the purchase once. Raises TargetError, Over."""
        target = purchase.crowd.target
        request, response = purchase.send(lambda: call(target, target.buy, person))
        if not person.tries and self.responses:
            take_off(self.responses[0][0], purchase.waited)
        person.tries += 1
        answer = read(target, response)
        request.answer(answer.outcome, {"order": answer.order, "error": answer.why, **answer.body})
        if answer.open:
            request.type = "info"
        for one, _ in self.responses:
            wrong = one is response and answer.outcome not in CORRECT
            report(one, f"{one.status_code} {answer.outcome}" if wrong else "")
        self.responses.clear()
        return answer


@events.init.add_listener
def set_up(environment: Environment, **_: Any) -> None:
    """Become the process that opens the sales, or a worker of one that does."""
    global here
    events.test_start.add_listener(_count_buyers)
    if isinstance(environment.runner, WorkerRunner):
        environment.process_exit_code = 0  # the verdict is the master's
        own = options_of(environment).target

        def make(told: Mapping[str, Any]) -> Target:
            take(environment, told, own_target=own)
            return target_of(environment, token="")

        here = worker = Worker(WorkerLink(environment), make)
        for over in (events.test_stop, events.quitting):
            over.add_listener(lambda **_: worker.close())
    else:
        _open_sales(environment)
    gc.freeze()  # no collection walks through what is loaded, in a rush or at the end


def _count_buyers(**_: Any) -> None:
    Buyer.count = 0


def _open_sales(environment: Environment) -> None:
    global here
    environment.process_exit_code = EXIT_CODES["unknown"]  # until there is a verdict
    options = options_of(environment)
    token, options.restock_token = options.restock_token, ""  # Locust sends options to its workers
    try:
        target_of(environment, token)
        for warning in permissions(environment, int(options.num_users or 1)):
            logger.warning("%s", warning)
    except TargetError as error:
        logger.error("%s", error)
        sys.exit(2)
    gathering = here = (
        Workers(MasterLink(environment), lambda: shared(environment))
        if isinstance(environment.runner, MasterRunner)
        else Local()
    )
    control = Control(environment, gathering, lambda: target_of(environment, token))
    events.test_start.add_listener(lambda **_: control.begin())
    events.test_stopping.add_listener(lambda **_: control.stop_begins())
    events.test_stop.add_listener(lambda **_: control.stop_ends())
    web_ui.install(environment, control, last_run=last_run, runs=runs)
