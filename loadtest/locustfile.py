"""200 buyers against 100 units, released at the same instant; each buys once.

    locust --headless --lock none      # oversells
    locust --headless --lock redis     # sells 100
    locust                             # the same from the web UI, http://127.0.0.1:8089
    locust --processes 4 --users 5000 --headless --lock redis    # from four processes

This project's shop must run at --host, and SHOP_RESTOCK_TOKEN must be its token, to open a sale.
--target my_shop.py describes any other shop (docs/your-shop.md). The run ends by itself.
Exit code by verdict: 0 exact, 3 oversold, 4 undersold, 6 unknown; 2 if the target's file is wrong.
"""

from typing import Any

from locust import FastHttpUser, events, task
from locust.env import Environment

from loadtest.rush.locust import interrupt, locust_options, locust_private, web_ui_guard
from loadtest.rush.locust.locust_rushes import LocustRushes
from loadtest.target import Answer, Buyer

rushes = LocustRushes()
events.init_command_line_parser.add_listener(locust_private.install)
events.init_command_line_parser.add_listener(locust_options.add_arguments)
events.init_command_line_parser.add_listener(interrupt.install)


class ShopUser(FastHttpUser):
    """A buyer: connects, waits at the barrier, buys once, and stays connected until the end.

    It repeats its request, with the same key, after one of RETRIED_OUTCOMES
    (loadtest/judge/outcomes.py): busy, lost, full, unavailable, unknown.
    """

    network_timeout = 45.0  # longer than the shop's own wait for a lock
    connection_timeout = 10.0

    @task
    def take_part(self) -> None:
        self.buyers = rushes.get_buyers()
        buyer = self.buyers.add_buyer(self)
        requester = self.buyers.get_requester(self)  # this user, or a TargetRequester
        requester.connect(buyer)
        # buy() builds its request. The request then waits at the barrier, in a hook that
        # add_buyer() has set: see loadtest/rush/local_buyers.py.
        answer = self.buyers.send_purchase(buyer, requester.buy)
        while self.buyers.wait_before_retry(answer):
            answer = self.buyers.send_purchase(buyer, requester.buy)
        self.buyers.finish_buyer()  # waits until Locust ends the rush

    def connect(self, buyer: Buyer) -> None:
        """Prepare the form and open the connection, before the barrier."""
        target = self.buyers.target
        self.form = {
            "product": target.product,
            "lock": target.name,  # the name of the strategy
            "buyer": buyer.name,
            "sale": str(target.sale),  # so that a late buyer cannot buy in the next sale
        }
        if target.hold_ms:
            self.form["hold_ms"] = str(target.hold_ms)
        self.client.get("/healthz", name="GET /healthz [connect]")

    def buy(self, buyer: Buyer) -> Answer:
        """Send the purchase. The key makes it safe to repeat the request."""
        with self.client.post(
            "/buy",
            name=f"POST /buy [{self.form['lock']}]",
            data=self.form,
            headers={"Idempotency-Key": buyer.key},
            catch_response=True,
        ) as response:
            return self.buyers.read_and_count(response)  # `sold_out` counts as a success


@events.init.add_listener
def set_up(environment: Environment, web_ui: Any, **_: Any) -> None:
    rushes.set_up(environment)
    web_ui_guard.install(environment, web_ui)
    # With a web UI, and in a worker, which opens no sales, Locust handles Ctrl-C itself.
    if web_ui is not None or not rushes.opens_sales:
        interrupt.restore()


@events.test_start.add_listener
def begin_rush(**_: Any) -> None:
    interrupt.restore()
    rushes.begin_rush()


@events.test_stopping.add_listener
def conclude_stopped_rush(**_: Any) -> None:
    rushes.conclude_stopped_rush()


@events.quitting.add_listener
def print_verdict_and_set_exit_code(environment: Environment, **_: Any) -> None:
    verdict, exit_code = rushes.conclude_last_rush()
    environment.process_exit_code = exit_code
    print(verdict)
