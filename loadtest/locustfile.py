"""200 buyers against 100 units, released at the same instant; each buys once.

    locust --headless --lock none      # oversells
    locust --headless --lock redis     # sells 100
    locust                             # the same from the web UI, http://127.0.0.1:8089

Works against any running shop (--host); needs its SHOP_RESTOCK_TOKEN to open a sale. The run ends
by itself. Exit code by verdict: 0 exact, 3 oversold, 4 undersold, 6 unknown.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import time
from typing import Any
from urllib.parse import urlencode

import gevent
from locust import FastHttpUser, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from loadtest.client import Shop, ShopUnreachable
from loadtest.measure import Interval
from loadtest.rush import Rush
from loadtest.verdict import ASK_AGAIN, EXIT_CODES, OUTCOMES, Told

logger = logging.getLogger("loadtest")

#: Answers that a correct shop gives: successes, whatever their status code.
CORRECT = {"sold", "sold_out", "busy", "lost", "throttled"}
FORM = "application/x-www-form-urlencoded"
#: Seconds that a buyer waits before asking again; not all of them at once.
PAUSE = (0.2, 0.6)

#: The rush that is on, or the last one.
rush: Rush | None = None
#: What the last rush came to, for whoever reads /rush, and how many there were.
last_run: dict[str, Any] = {"number": 0}


@events.init_command_line_parser.add_listener
def add_arguments(parser: LocustArgumentParser) -> None:
    parser.add_argument(
        "--lock",
        env_var="LOCUST_LOCK",
        default="none",
        choices=_strategy_names(),
        help="The strategy that guards the stock",
    )
    parser.add_argument("--stock", type=int, default=100, help="Units on the shelf")
    parser.add_argument(
        "--hold-ms", type=int, default=0, help="Milliseconds between check and decrement"
    )
    parser.add_argument("--product", default="apple", help="What they buy")
    parser.add_argument(
        "--nodes",
        default="",
        help="More addresses of the same shop, comma-separated: buyers alternate between them",
    )
    parser.add_argument(
        "--deadline", type=float, default=60.0, help="Seconds after which buyers give up"
    )
    parser.add_argument(
        "--restock-token",
        env_var="SHOP_RESTOCK_TOKEN",
        default="",
        include_in_web_ui=False,
        help="The shop's SHOP_RESTOCK_TOKEN",
    )
    parser.add_argument(
        "--result", default="", include_in_web_ui=False, help="Write what it came to there, as JSON"
    )


def _strategy_names() -> list[str] | None:
    """The shop's own list, for the drop-down; None (any text) while no shop answers."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-H", "--host", default="http://127.0.0.1:8000")
    host = parser.parse_known_args(sys.argv[1:])[0].host
    try:
        return [strategy["name"] for strategy in Shop(host, timeout=2).strategies()]
    except ShopUnreachable:
        return None


class Buyer(FastHttpUser):
    """Connects, arrives at the barrier, buys once, and stays until the rush is over."""

    network_timeout = 45.0  # longer than the shop's own wait for a lock
    connection_timeout = 10.0

    def __init__(self, environment: Environment) -> None:
        assert rush is not None
        self.number, self.key = rush.join()
        self.body = _body(rush, self.number)  # now: at the barrier every microsecond is spread
        options = environment.parsed_options
        assert options is not None
        nodes = [environment.host, *filter(None, str(options.nodes).split(","))]
        self.host = nodes[self.number % len(nodes)]
        super().__init__(environment)

    def on_start(self) -> None:
        assert rush is not None
        with self.client.get("/healthz", name="GET /healthz [warm-up]", catch_response=True) as _:
            pass
        rush.arrive()

    @task
    def buy(self) -> None:
        assert rush is not None
        sent = time.monotonic()
        told = self._ask(rush)
        answered = time.monotonic()
        while told.outcome in ASK_AGAIN and not rush.over():
            gevent.sleep(random.uniform(*PAUSE))
            told = self._ask(rush)
        rush.leave(told, Interval(sent, answered, time.monotonic()))
        gevent.event.Event().wait()  # a user that ends would be replaced by a new one

    def _ask(self, rush: Rush) -> Told:
        """Send the purchase once."""
        with self.client.post(
            "/buy",
            name=f"POST /buy [{rush.lock}]",
            data=self.body,
            headers={"Idempotency-Key": self.key, "Content-Type": FORM},
            catch_response=True,
        ) as response:
            told = self._understand(response)
            if told.outcome in CORRECT:
                response.success()
            else:
                response.failure(f"{response.status_code} {told.outcome}")
        return told

    def _understand(self, response: Any) -> Told:
        """No answer, and any that is not the shop's, leaves open what happened: `unknown`."""
        try:
            body = json.loads(response.text or "")
            outcome = body["outcome"]
        except (ValueError, TypeError, KeyError):
            return Told(self.key, "unknown")
        if outcome not in OUTCOMES or response.status_code == 500:
            return Told(self.key, "unknown")
        return Told(self.key, outcome, body.get("order"))


def _body(rush: Rush, number: int) -> str:
    wanted = {"product": rush.product, "lock": rush.lock, "buyer": f"buyer-{number}"}
    if rush.hold_ms:
        wanted["hold_ms"] = str(rush.hold_ms)
    return urlencode(wanted)


@events.init.add_listener
def add_route(environment: Environment, **_: Any) -> None:
    """GET /rush of the web UI: what the last rush came to, as JSON."""
    ui = environment.web_ui
    if ui and ui.app:
        ui.app.add_url_rule("/rush", "rush", ui.auth_required_if_enabled(lambda: last_run))


@events.test_start.add_listener
def open_the_shop(environment: Environment, **_: Any) -> None:
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
        gevent.spawn(_end, environment, {"verdict": "unknown", "error": str(error)})
        return
    gevent.spawn(_watch, environment, rush)


def _watch(environment: Environment, rush: Rush) -> None:
    """End the run when every buyer has an answer: nothing else would."""
    patience = rush.buyers / 20 + 30  # spawning and warming up
    if not rush.gate.wait(patience):
        logger.error("only %d of %d buyers arrived", rush.arrived, rush.buyers)
    rush.finished.wait(rush.deadline_s + 60)
    try:
        result = rush.result()
    except ShopUnreachable as error:
        logger.error("%s", error)
        result = {"verdict": "unknown", "error": str(error)}
    _end(environment, result)


def _end(environment: Environment, result: dict[str, Any]) -> None:
    number = last_run["number"] + 1
    last_run.clear()
    last_run.update(result, number=number)
    options = environment.parsed_options
    assert options is not None
    assert environment.runner is not None
    if options.result:
        with open(options.result, "w") as file:
            json.dump(result, file)
    logger.info(
        "%s [%s]: %s orders for %s units, %s left on the shelf",
        result["verdict"].upper(),
        result.get("lock"),
        result.get("orders"),
        result.get("initial_stock"),
        result.get("stock_left"),
    )
    environment.process_exit_code = EXIT_CODES[result["verdict"]]
    if options.headless:
        environment.runner.quit()
    else:
        environment.runner.stop()
