"""200 buyers against 100 units, released at the same instant; each buys once.

    locust --headless --lock none      # oversells
    locust --headless --lock redis     # sells 100
    locust                             # the same from the web UI, http://127.0.0.1:8089
    locust --processes 4 --users 5000 --headless --lock redis    # from four processes

Works against any running shop of this project (--host); needs its SHOP_RESTOCK_TOKEN to open a
sale. Against any other shop with --target my_shop.py (docs/your-shop.md). The run ends by itself.
Exit code by verdict: 0 exact, 3 oversold, 4 undersold, 6 unknown; 2 for a target that is wrong.
"""

from typing import Any

from locust import FastHttpUser, events, task
from locust.env import Environment

from loadtest.rush import guard, options
from loadtest.rush.rushes import Rushes
from loadtest.target import Answer
from loadtest.target import Buyer as Person  # number, name and key: Buyer is the Locust user

rushes = Rushes()
events.init_command_line_parser.add_listener(options.add_arguments)


class Buyer(FastHttpUser):
    """Connects, waits at the barrier, buys once, and stays. Asks again, with the same key, only
    after an answer that is not final: busy, say, or none."""

    network_timeout = 45.0  # longer than the shop's own wait for a lock
    connection_timeout = 10.0

    @task
    def take_part(self) -> None:
        self.crowd = rushes.join()
        me = self.crowd.join(self)
        steps = self.crowd.steps(self)  # these below; with --target those of the target's file
        steps.connect(me)
        answer = self.crowd.ask(me, steps.buy)  # is built, waits at the barrier, and is sent
        while self.crowd.asks_again(answer):  # after a pause
            answer = self.crowd.ask(me, steps.buy)
        self.crowd.leave()

    def connect(self, me: Person) -> None:
        """All that comes before the barrier."""
        shop = self.crowd.target
        self.form = {"product": shop.product, "lock": shop.name, "buyer": me.name}
        self.form["sale"] = str(shop.sale)  # a late buyer buys nothing of the next sale
        if shop.hold_ms:
            self.form["hold_ms"] = str(shop.hold_ms)
        self.client.get("/healthz", name="GET /healthz [connect]")

    def buy(self, me: Person) -> Answer:
        """Send the purchase. Its key makes it safe to send it again."""
        with self.client.post(
            "/buy",
            name=f"POST /buy [{self.form['lock']}]",
            data=self.form,
            headers={"Idempotency-Key": me.key},
            catch_response=True,
        ) as response:
            return self.crowd.read(response)  # sold out is a correct answer, and no failure


@events.init.add_listener
def set_up(environment: Environment, web_ui: Any, **_: Any) -> None:
    rushes.set_up(environment)
    guard.install(environment, web_ui)


@events.test_start.add_listener
def open_the_sale(**_: Any) -> None:
    rushes.begin()


@events.test_stopping.add_listener
def judge_what_was_stopped(**_: Any) -> None:
    rushes.end()


@events.quitting.add_listener
def print_the_verdict(environment: Environment, **_: Any) -> None:
    verdict, environment.process_exit_code = rushes.verdict()
    print(verdict)
