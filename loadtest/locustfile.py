"""200 buyers against 100 units, released at the same instant; each buys once.

    locust --headless --lock none      # oversells
    locust --headless --lock redis     # sells 100
    locust                             # the same from the web UI, http://127.0.0.1:8089

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
from typing import Any

import gevent
from locust import FastHttpUser, events, task
from locust.env import Environment

from loadtest.judge.verdict import EXIT_CODES, Reply
from loadtest.rush import web_ui
from loadtest.rush.answers import keep_open, report, require_good, stay_at_home
from loadtest.rush.choice import hosts, permissions, target_of
from loadtest.rush.measure import Interval
from loadtest.rush.options import add_arguments
from loadtest.rush.outcome import conclude, keep, last_run, runs
from loadtest.rush.reading import read
from loadtest.rush.rush import Rush
from loadtest.stack.client import ShopUnreachable
from loadtest.target import Answer
from loadtest.target import Buyer as Person
from loadtest.target.answer import CORRECT, pause_after
from loadtest.target.errors import TargetError, call
from loadtest.target.hosts import name_of
from servers.loopback import ask_loopback_directly

logger = logging.getLogger("loadtest")

#: The present rush, or the last one.
rush: Rush | None = None

ask_loopback_directly()
events.init_command_line_parser.add_listener(add_arguments)


class Buyer(FastHttpUser):
    """Does what comes before, waits at the barrier, buys once, and stays until the rush is over."""

    network_timeout = 45.0  # longer than the shop's own wait for a lock
    connection_timeout = 10.0
    count = 0

    def __init__(self, environment: Environment) -> None:
        self.number = Buyer.count
        Buyer.count += 1
        nodes = hosts(environment)
        self.host = nodes[self.number % len(nodes)]
        super().__init__(environment)
        stay_at_home(self.client, {name_of(node) for node in nodes})
        self.responses = keep_open(self.client)

    @task
    def take_part(self) -> None:
        """One rush. The task ends with the next one: a user that ends would be replaced."""
        assert rush is not None
        current = rush
        person = Person(self.number, current.key(self.number), self.client)
        try:
            self._prepare(current, person)
            current.arrive()
            self._buy(current, person)
        except TargetError as error:
            current.break_off(error)
        current.replaced.wait()

    def _prepare(self, rush: Rush, person: Person) -> None:
        """All that comes before the barrier. Raises TargetError."""
        self.responses.clear()
        try:
            call(rush.target, rush.target.prepare, person)
        finally:
            require_good(self.responses)  # an answer that is an error says more than what follows

    def _buy(self, rush: Rush, person: Person) -> None:
        """Ask until an answer is final or the deadline is over. Raises TargetError."""
        if rush.broken is not None:
            return
        sent = time.monotonic()
        answer = self._ask(rush, person)
        answered = time.monotonic()
        while rush.asks_again(answer):
            gevent.sleep(pause_after(answer))
            answer = self._ask(rush, person)
        reply = Reply(person.key, answer.outcome, answer.order)  # type: ignore[arg-type]
        rush.leave(reply, Interval(sent, answered, time.monotonic()))

    def _ask(self, rush: Rush, person: Person) -> Answer:
        """Send the purchase once. Raises TargetError."""
        request = rush.ask(person.key)
        response = call(rush.target, rush.target.buy, person)
        person.tries += 1
        answer = read(rush.target, response)
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
    environment.process_exit_code = EXIT_CODES["unknown"]  # until there is a verdict
    options = environment.parsed_options
    assert options is not None
    try:
        target_of(environment)
        for warning in permissions(environment, int(options.num_users or 1)):
            logger.warning("%s", warning)
    except TargetError as error:
        logger.error("%s", error)
        sys.exit(2)

    def begin_another(wanted: dict[str, Any]) -> bool:
        """Another rush with the buyers that stayed; False where none are free."""
        before, options = rush, environment.parsed_options
        assert options is not None
        if before is None or not before.is_judged or before.stopped or not options.stay:
            return False
        vars(options).update(wanted)
        begin(environment)
        before.replaced.set()
        return True

    def progress() -> dict[str, Any] | None:
        return None if rush is None or rush.finished.is_set() else rush.progress()

    web_ui.install(
        environment, last_run=last_run, runs=runs, progress=progress, begin_another=begin_another
    )
    gc.freeze()  # no collection walks through what is loaded, in a rush or at the end


@events.test_start.add_listener
def open_the_shop(environment: Environment, **_: Any) -> None:
    Buyer.count = 0
    begin(environment)


def begin(environment: Environment) -> None:
    """Open a sale for a rush, and start its watcher."""
    global rush
    options = environment.parsed_options
    assert options is not None
    buyers = int(options.num_users or 1)
    rush = Rush(
        target=target_of(environment),
        buyers=buyers,
        stock=int(options.stock),
        deadline_s=float(options.deadline),
    )
    try:
        permissions(environment, buyers)
        rush.open_sale()
    except ShopUnreachable as error:
        logger.error("%s", error)
        rush.is_judged = True
        gevent.spawn(_end, environment, rush.failed(str(error)))
        return
    gevent.spawn(_watch, environment, rush)


def _watch(environment: Environment, rush: Rush) -> None:
    """End the run when every buyer has an answer. Locust itself would not end it."""
    arrival_timeout = rush.buyers / 20 + rush.target.prepare_s  # spawning and warming up
    if not rush.gate.wait(arrival_timeout):
        logger.error("only %d of %d buyers arrived", rush.arrived, rush.buyers)
        rush.begin()  # with those who are there; without the others there is no verdict
    rush.finished.wait(rush.deadline_s + 60)
    if rush.is_judged:
        return  # it was stopped, and what Locust runs now is none of our business
    conclude(environment, rush)
    _end_the_run(environment)


@events.test_stop.add_listener
def conclude_what_was_stopped(environment: Environment, **_: Any) -> None:
    """Judge a rush that was stopped in its middle: in the web UI, or by --run-time."""
    if rush is not None and not rush.is_judged:
        rush.stop()
        conclude(environment, rush)


def _end(environment: Environment, result: dict[str, Any]) -> None:
    """Keep a result, and end the run."""
    keep(environment, result)
    _end_the_run(environment)


def _end_the_run(environment: Environment) -> None:
    """End a run that would go on forever, unless the buyers stay for another rush."""
    options = environment.parsed_options
    assert options is not None
    assert environment.runner is not None
    if options.stay:
        return
    if options.headless:
        environment.runner.quit()
    else:
        environment.runner.stop()
