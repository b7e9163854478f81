"""The target for pretix: a guest with a ticket in the cart, who has come to the last page.

The shop is set to keep no ticket for a cart (`stock_up.py`), so the last button decides.
"""

from __future__ import annotations

import re
import threading
from typing import Any
from urllib.request import urlopen

from loadtest.target import Answer, Buyer, Order, Target, TargetError, again, error, sold, sold_out
from loadtest.target import sql as query
from servers.embedded import VAR

EVENT = "/apples/harvest"
CSRF = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')
#: So many prepare at a time: the cart waits for the lock of the quota too.
FEW = threading.Semaphore(4)
#: Of one buyer, to put a ticket into the cart.
TRIES = 10
CODE = re.compile(EVENT + r"/order/(\w+)/")


class PretixShop(Target):
    name = "pretix"
    prepare_s = 400.0  # five pages for each buyer

    def open(self, stock: int) -> None:
        """pretix has no stock: of a quota it takes off the orders and the carts that there are."""
        self.sql("DELETE FROM pretixbase_cartposition")
        ((sold_before,),) = self.sql("SELECT count(*) FROM pretixbase_orderposition")
        self.sql("UPDATE pretixbase_quota SET size = %s", stock + sold_before)
        for _ in range(4):  # both processes compile its pages, which takes seconds
            with urlopen(f"{self.host}{EVENT}/", timeout=120):
                pass

    def prepare(self, buyer: Buyer) -> None:
        with FEW:
            self._to_the_last_page(buyer)

    def _to_the_last_page(self, buyer: Buyer) -> None:
        buyer.client.cookiejar.clear()
        ((ticket,),) = self.sql("SELECT id FROM pretixbase_item")
        page = buyer.client.get(f"{EVENT}/", name="event")
        form = {"csrfmiddlewaretoken": csrf(page), f"item_{ticket}": "1", "ajax": "1"}
        for _ in range(TRIES):  # who waits 3 s for the quota's lock is asked to try again
            said = buyer.client.post(f"{EVENT}/cart/add", data=form, name="add to cart").json()
            if said["success"]:
                break
        else:
            raise TargetError(f"no ticket came into the cart: {said['message']}")
        page = buyer.client.get(f"{EVENT}/checkout/start", name="checkout")
        address = f"{buyer.name}@example.com"
        form = {"csrfmiddlewaretoken": csrf(page), "email": address, "email_repeat": address}
        page = buyer.client.post(f"{EVENT}/checkout/questions/", data=form, name="address")
        if not page.url.endswith("/checkout/confirm/"):
            raise TargetError(f"the checkout leads to {page.url} and not to its last page")
        buyer.kept["form"] = {"csrfmiddlewaretoken": csrf(page), "ajax": "1"}

    def buy(self, buyer: Buyer) -> Any:
        return buyer.client.post(
            f"{EVENT}/checkout/confirm/", data=buyer.kept["form"], name="place order"
        )

    def read(self, response: Any) -> Answer:
        """What pretix's own page gets: a message, and where to go."""
        said = response.json()
        if said.get("success"):
            return sold(order=CODE.findall(said["redirect"])[0])
        message = str(said.get("message"))
        if "no longer available" in message:
            return sold_out()
        return again(message) if "too busy" in message else error(message)

    def orders(self) -> list[Order]:
        found = self.sql(
            "SELECT code, email FROM pretixbase_orderposition AS position "
            "JOIN pretixbase_order AS placed ON placed.id = position.order_id ORDER BY position.id"
        )
        return [Order(code, email.partition("@")[0]) for code, email in found]

    def sql(self, text: str, *values: Any) -> Any:
        return query((VAR / "targets" / "pretix" / "dsn").read_text(), text, *values)


def csrf(page: Any) -> str:
    """The CSRF token of a page. Raises TargetError."""
    found = CSRF.search(page.text or "")
    if found is None:
        raise TargetError(f"{page.url} has no form with a CSRF token")
    return found[1]
