"""A shop with a login, a CSRF token and a cart, and the target with which Locust buys there.

    python -m loadtest.tests.cart_shop PORT MODE

The shop sells under a mutex. Its modes:

honest     lists all orders
gathering  lists all orders, and answers no purchase until GATHERED_BUYERS have sent theirs
hiding     lists the first three orders only
deleting   deletes all orders at POST /change
repeating  writes all orders again at POST /change
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Barrier, Lock
from typing import Any

from loadtest.target import Answer, Buyer, Order, Target, ask, error, sold, sold_out

CSRF_TOKEN_FORMAT = "csrf-of-{}"
#: The number of buyers for whom the shop in mode `gathering` waits before it answers.
GATHERED_BUYERS = 20
#: If fewer buyers have sent a purchase after this time, the shop in mode `gathering` answers none.
GATHERING_SECONDS = 15


class CartShop(Target):
    """A target whose buyers log in and fill a cart in prepare(), before the rush.

    In buy() each sends one request, the checkout.
    """

    name = "cart"

    def open(self, stock: int) -> None:
        ask(f"{self.host}/restock", method="POST", body={"stock": stock})

    def prepare(self, buyer: Buyer) -> None:
        login = buyer.client.post("/login", json={"user": buyer.name})
        buyer.kept["headers"] = {"X-CSRF": login.json()["csrf"]}
        for product in ("pear", "apple"):
            buyer.client.post("/cart", json={"product": product}, headers=buyer.kept["headers"])

    def buy(self, buyer: Buyer) -> Any:
        return buyer.client.post("/checkout", headers=buyer.kept["headers"])

    def read(self, response: Any) -> Answer:
        body = response.json()
        if response.status_code >= 400:
            return sold_out() if body["error"] == "sold out" else error(body["error"])
        return sold(order=body["order"])

    def orders(self) -> list[Order]:
        return [Order(number, buyer) for number, buyer in ask(f"{self.host}/orders")]

    def stock(self) -> int:
        return int(ask(f"{self.host}/stock"))


class Shop(BaseHTTPRequestHandler):
    """The shop. Its state is in the class, because each connection creates an instance.

    orders         the number and the buyer of each order
    requests_seen  the paths of the buyers' requests, in the order in which they came
    carts          the products in each buyer's cart
    """

    protocol_version = "HTTP/1.1"
    mode = "honest"
    lock = Lock()
    all_have_sent_purchases = Barrier(GATHERED_BUYERS)
    stock = 0
    orders: list[tuple[str, str]] = []
    requests_seen: list[str] = []
    carts: dict[str, list[str]] = {}

    def do_GET(self) -> None:
        """Answer /orders, /stock, and /seen, whose answer is the list `requests_seen`."""
        listed_orders = Shop.orders[:3] if self.mode == "hiding" else Shop.orders
        bodies = {"/orders": listed_orders, "/stock": Shop.stock, "/seen": Shop.requests_seen}
        self._answer(200 if self.path in bodies else 404, bodies.get(self.path))

    def do_POST(self) -> None:
        """Answer /restock and /change for the test, /login, /cart and /checkout for the buyers."""
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length) or "{}")
        if self.path == "/restock":
            Shop.stock = body["stock"]
            Shop.orders = []
            Shop.requests_seen = []
            Shop.carts = {}
            return self._answer(200, None)
        if self.path == "/change":
            for number, user in list(Shop.orders):
                ORDER_CHANGES_BY_MODE[self.mode](number, user)
            return self._answer(200, None)
        Shop.requests_seen.append(self.path)
        if self.path == "/login":
            cookie = {"Set-Cookie": f"user={body['user']}"}
            return self._answer(200, {"csrf": CSRF_TOKEN_FORMAT.format(body["user"])}, cookie)
        user = self.headers.get("Cookie", "").partition("user=")[2].partition(";")[0]
        if not user or self.headers.get("X-CSRF") != CSRF_TOKEN_FORMAT.format(user):
            return self._answer(403, {"error": "forbidden"})
        if self.path == "/cart":
            Shop.carts.setdefault(user, []).append(body["product"])
            return self._answer(200, None)
        return self._checkout(user)

    def _checkout(self, user: str) -> None:
        """Sell one unit to a user who put a pear and then an apple into the cart."""
        if Shop.carts.get(user) != ["pear", "apple"]:
            return self._answer(400, {"error": "put a pear and an apple into the cart first"})
        if self.mode == "gathering":
            self.all_have_sent_purchases.wait(GATHERING_SECONDS)
        with Shop.lock:
            if not Shop.stock:
                return self._answer(409, {"error": "sold out"})
            Shop.stock -= 1
            number = f"A-{len(Shop.orders) + 1}"
            Shop.orders.append((number, user))
        return self._answer(201, {"order": number})

    def _answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        """Log no requests, so that the shop's log has only its errors."""


def delete_order(number: str, user: str) -> None:
    """Delete an order, and put its unit back."""
    with Shop.lock:
        Shop.orders.remove((number, user))
        Shop.stock += 1


def write_order_again(number: str, user: str) -> None:
    """Write a copy of an order under a new number, as if a queue had delivered it twice."""
    with Shop.lock:
        Shop.orders.append((f"{number}-again", user))


#: How POST /change changes an order after the rush, by the shop's mode.
ORDER_CHANGES_BY_MODE = {"deleting": delete_order, "repeating": write_order_again}


class Server(ThreadingHTTPServer):
    request_queue_size = 256  # all buyers of a rush connect at once
    daemon_threads = True


if __name__ == "__main__":
    Shop.mode = sys.argv[2]
    Server(("127.0.0.1", int(sys.argv[1])), Shop).serve_forever()
