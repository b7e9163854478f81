"""200 buyers against 100 units, released at the same instant; each buys once.

    locust --headless --lock none      # oversells
    locust --headless --lock redis     # sells 100
    locust                             # the same from the web UI, http://127.0.0.1:8089

Works against any running shop (--host); needs its SHOP_RESTOCK_TOKEN to open a sale. The run ends
by itself. Exit code by verdict: 0 exact, 3 oversold, 4 undersold, 6 unknown, which it is until
there is another verdict.
"""

from __future__ import annotations

import gc
import json
import logging
import random
import time
from typing import Any
from urllib.parse import urlencode

import gevent
from locust import FastHttpUser, events, task
from locust.env import Environment

from loadtest.judge.verdict import ASK_AGAIN, EXIT_CODES, OUTCOMES, Reply
from loadtest.rush import web_ui
from loadtest.rush.measure import Interval
from loadtest.rush.options import add_arguments
from loadtest.rush.outcome import conclude, keep, last_run, runs
from loadtest.rush.rush import Rush
from loadtest.stack.client import Shop, ShopUnreachable
from servers.loopback import ask_loopback_directly

logger = logging.getLogger("loadtest")

#: Answers that a correct shop gives: successes, whatever their status code.
CORRECT = {"sold", "sold_out", "closed", "busy", "lost", "throttled"}
FORM = "application/x-www-form-urlencoded"
#: Seconds that a buyer waits before asking again, at random, so that not all ask at once.
PAUSE = (0.2, 0.6)

#: The present rush, or the last one.
rush: Rush | None = None

ask_loopback_directly()
events.init_command_line_parser.add_listener(add_arguments)


class Buyer(FastHttpUser):
    """Connects, waits at the barrier, buys once, and stays until the rush is over."""

    network_timeout = 45.0  # longer than the shop's own wait for a lock
    connection_timeout = 10.0
    count = 0

    def __init__(self, environment: Environment) -> None:
        self.number = Buyer.count
        Buyer.count += 1
        options = environment.parsed_options
        assert options is not None
        nodes = [environment.host, *filter(None, str(options.nodes).split(","))]
        self.host = nodes[self.number % len(nodes)]
        super().__init__(environment)

    @task
    def take_part(self) -> None:
        """One rush. The task ends with the next one: a user that ends would be replaced."""
        assert rush is not None
        current = rush
        body = _body(current, self.number)  # before the barrier, where it delays nobody
        key = current.key(self.number)
        with self.client.get("/healthz", name="GET /healthz [warm-up]", catch_response=True) as _:
            pass
        current.arrive()
        self._buy(current, key, body)
        current.replaced.wait()

    def _buy(self, rush: Rush, key: str, body: str) -> None:
        """Ask until an answer is final or the deadline is over."""
        sent = time.monotonic()
        reply = self._ask(rush, key, body)
        answered = time.monotonic()
        while reply.outcome in ASK_AGAIN and not rush.over():
            gevent.sleep(random.uniform(*PAUSE))
            reply = self._ask(rush, key, body)
        rush.leave(reply, Interval(sent, answered, time.monotonic()))

    def _ask(self, rush: Rush, key: str, form: str) -> Reply:
        """Send the purchase once."""
        request = rush.ask(key)
        with self.client.post(
            "/buy",
            name=f"POST /buy [{rush.lock}]",
            data=form,
            headers={"Idempotency-Key": key, "Content-Type": FORM},
            catch_response=True,
        ) as response:
            reply, body = self._parse(key, response)
            if reply.outcome in CORRECT:
                response.success()
            else:
                response.failure(f"{response.status_code} {reply.outcome}")
        request.answer(reply.outcome, body)
        return reply

    def _parse(self, key: str, response: Any) -> tuple[Reply, dict[str, Any]]:
        """The reply, and all that the answer says. No answer, or one not from the shop, leaves open
        what happened: `unknown`."""
        try:
            body = dict(json.loads(response.text or ""))
            outcome = body["outcome"]
        except (ValueError, TypeError, KeyError):
            return Reply(key, "unknown"), {}
        if outcome not in OUTCOMES or response.status_code == 500:
            return Reply(key, "unknown"), {}
        return Reply(key, outcome, body.get("order")), body


def _body(rush: Rush, number: int) -> str:
    wanted = {"product": rush.product, "lock": rush.lock, "buyer": f"buyer-{number}"}
    wanted["sale"] = str(rush.sale)  # a late request must not buy in the next sale
    if rush.hold_ms:
        wanted["hold_ms"] = str(rush.hold_ms)
    return urlencode(wanted)


@events.init.add_listener
def set_up(environment: Environment, **_: Any) -> None:
    environment.process_exit_code = EXIT_CODES["unknown"]  # until there is a verdict

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
    rush = Rush(
        shop=Shop(environment.host or "", token=options.restock_token),
        lock=options.lock,
        buyers=int(options.num_users or 1),
        stock=int(options.stock),
        hold_ms=int(options.hold_ms),
        product=options.product,
        deadline_s=float(options.deadline),
    )
    try:
        rush.open_sale()
    except ShopUnreachable as error:
        logger.error("%s", error)
        rush.is_judged = True
        gevent.spawn(_end, environment, rush.failed(str(error)))
        return
    gevent.spawn(_watch, environment, rush)


def _watch(environment: Environment, rush: Rush) -> None:
    """End the run when every buyer has an answer. Locust itself would not end it."""
    arrival_timeout = rush.buyers / 20 + 30  # spawning and warming up
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
