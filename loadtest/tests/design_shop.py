"""Correct shops of five designs, and the targets with which Locust buys in them.

docs/your-shop.md describes how to write such a target. Start a shop with:

    python -m loadtest.tests.design_shop PORT DESIGN

queued      promises a unit in its answer, and writes the order and the stock later
confirmed   reserves a unit in a first request, and sells it in a second one
units       has a row for each unit
numbered    gives each customer's first order the number 1, so that a number occurs several times
limited     sells one order to each customer, and answers every later purchase with that order
"""

import json
import sys
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Timer
from typing import Any

from loadtest.target import Answer, Buyer, Order, Target, ask, error, sold, sold_out

#: How long after its answer a shop of the design `queued` writes an order.
QUEUE_DELAY_SECONDS = 0.5


class DesignTarget(Target):
    """A target whose purchase is one request."""

    name = "design"
    warm_up = "/stock"

    def open(self, stock: int) -> None:
        ask(f"{self.host}/open", method="POST", body={"stock": stock})

    def buy(self, buyer: Buyer) -> Any:
        return buyer.client.post("/buy", json={"user": buyer.key})

    def read(self, response: Any) -> Answer:
        if response.status_code == 409:
            return sold_out()
        if response.status_code >= 400:
            return error(response.text)
        return sold(order=response.json().get("order"))

    def orders(self) -> list[Order]:
        return [Order(row["id"], row["user"]) for row in ask(f"{self.host}/orders")]

    def stock(self) -> int:
        return int(ask(f"{self.host}/stock"))


class ConfirmedTarget(DesignTarget):
    """A target with two requests in buy(). Only the first one, the reservation, can be refused."""

    def buy(self, buyer: Buyer) -> Any:
        response = buyer.client.post("/reserve", json={"user": buyer.key})
        if response.status_code >= 400:
            return response
        return buyer.client.post("/buy", json={"user": buyer.key})


class NameTarget(DesignTarget):
    """A target that buys as buyer.name, and reads no order numbers.

    The name, unlike buyer.key, is the same in every rush. So all rushes have the same customers.
    """

    def buy(self, buyer: Buyer) -> Any:
        return buyer.client.post("/buy", json={"user": buyer.name})

    def read(self, response: Any) -> Answer:
        answer = super().read(response)
        return sold() if answer.outcome == "sold" else answer


class NumberedTarget(DesignTarget):
    """A target for the design `numbered`. It reads no order numbers: they are not unique."""

    def read(self, response: Any) -> Answer:
        answer = super().read(response)
        return sold() if answer.outcome == "sold" else answer


@dataclass
class OrderRow:
    """The row of an order.

    id      the primary key
    user    the customer
    number  the order number in the answer to the customer
    """

    id: int
    user: str
    number: int | str


#: The owner in the row of a unit that is not sold.
NO_OWNER = ""


class Shop:
    """A shop in memory, of one of the designs. Its public methods are thread-safe.

    orders          the orders of all sales
    units           the owner of each unit of the current sale, or NO_OWNER
    promised_units  how many units a shop of the design `queued` has promised
    reservations    the customers who have reserved a unit
    """

    def __init__(self, design: str) -> None:
        self.design = design
        self.lock = Lock()
        self.orders: list[OrderRow] = []
        self.units: list[str] = []  # the owner of each unit; NO_OWNER if it is not sold
        self.promised_units = 0
        self.reservations: set[str] = set()

    def open(self, stock: int) -> None:
        """Open a new sale. The orders of earlier sales stay, as in a real shop."""
        with self.lock:
            self.units = [NO_OWNER] * stock
            self.promised_units = 0
            self.reservations = set()

    def stock(self) -> int:
        with self.lock:
            return self.units.count(NO_OWNER)

    def reserve(self, user: str) -> tuple[int, Any]:
        """Reserve a unit, if there is one. Return the status and the body of the answer."""
        with self.lock:
            if len(self.reservations) >= len(self.units):
                return 409, {"error": "sold out"}
            self.reservations.add(user)
            return 200, {}

    def buy(self, user: str) -> tuple[int, Any]:
        """Sell a unit, if there is one. Return the status and the body of the answer.

        A shop of the design `queued` promises the unit, and writes the order later. In a shop of
        the design `confirmed` the user must have reserved the unit. A shop of the design `limited`
        answers with the first order of a user who already has one.
        """
        with self.lock:
            orders_of_user = self._orders_of(user)
            if self.design == "limited" and orders_of_user:
                return 200, {"order": orders_of_user[0].number}
            if self.design == "confirmed" and user not in self.reservations:
                return 402, {"error": "reserve first"}
            if self.design == "queued":
                if self.promised_units >= len(self.units):
                    return 409, {"error": "sold out"}
                self.promised_units += 1
                Timer(QUEUE_DELAY_SECONDS, self.write_promised_order, [user]).start()
                return 202, {}
            if NO_OWNER not in self.units:
                return 409, {"error": "sold out"}
            return 201, {"order": self._write_order(user).number}

    def write_promised_order(self, user: str) -> None:
        with self.lock:
            self._write_order(user)

    def list_orders(self) -> list[dict[str, Any]]:
        with self.lock:
            return [{"id": order.id, "user": order.user} for order in self.orders]

    def _orders_of(self, user: str) -> list[OrderRow]:
        return [order for order in self.orders if order.user == user]

    def _write_order(self, user: str) -> OrderRow:
        """Sell a unit to a user, and return the order. The caller holds the mutex."""
        self.units[self.units.index(NO_OWNER)] = user
        order_id = len(self.orders) + 1
        number: int | str = f"R-{order_id:06}"
        if self.design == "numbered":
            number = len(self._orders_of(user)) + 1
        self.orders.append(OrderRow(order_id, user, number))
        return self.orders[-1]


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of the buyers and of the target with the methods of `shop`."""

    protocol_version = "HTTP/1.1"
    shop: Shop

    def do_GET(self) -> None:
        """Answer /orders with the orders, and every other path with the stock."""
        if self.path == "/orders":
            return self._answer(200, self.shop.list_orders())
        return self._answer(200, self.shop.stock())

    def do_POST(self) -> None:
        """Answer /open and /reserve, and every other path as a purchase."""
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length) or "{}")
        if self.path == "/open":
            self.shop.open(body["stock"])
            return self._answer(200, None)
        action = self.shop.reserve if self.path == "/reserve" else self.shop.buy
        status, answer = action(body["user"])
        return self._answer(status, answer)

    def _answer(self, status: int, body: Any) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        """Log no requests, so that the shop's log has only its errors."""


class Server(ThreadingHTTPServer):
    request_queue_size = 256  # all buyers of a rush connect at once
    daemon_threads = True


if __name__ == "__main__":
    Handler.shop = Shop(sys.argv[2])
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
