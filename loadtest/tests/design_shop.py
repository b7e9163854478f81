"""Correct shops of five designs, and their targets as docs/your-shop.md describes them.

    python -m loadtest.tests.design_shop PORT DESIGN

queued      promises at once, and writes orders and stock later
confirmed   reserves a unit, then confirms it in a second request
units       has a row for each unit
numbered    numbers each customer's orders from 1
limited     sells one order to each customer, and shows a returning one the order that it has
"""

import json
import sys
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Timer
from typing import Any

from loadtest.target import Answer, Buyer, Order, Target, ask, error, sold, sold_out

#: Seconds until a queued order is written.
WRITTEN_AFTER_SECONDS = 0.5


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
    """A target with two requests in buy(): the buyers race for the reservation."""

    def buy(self, buyer: Buyer) -> Any:
        response = buyer.client.post("/reserve", json={"user": buyer.key})
        if response.status_code >= 400:
            return response
        return buyer.client.post("/buy", json={"user": buyer.key})


class ByName(DesignTarget):
    """A target that logs in with buyer.name, which is the same in every rush."""

    def buy(self, buyer: Buyer) -> Any:
        return buyer.client.post("/buy", json={"user": buyer.name})

    def read(self, response: Any) -> Answer:
        answer = super().read(response)
        return sold() if answer.outcome == "sold" else answer


class NumberedTarget(DesignTarget):
    """A target that reads no order numbers, because each customer's orders are numbered from 1."""

    def read(self, response: Any) -> Answer:
        answer = super().read(response)
        return sold() if answer.outcome == "sold" else answer


@dataclass
class Row:
    """An order of the shop; its id is the primary key."""

    id: int
    user: str
    number: int | str


class Shop:
    """The shop of any design. Every method holds the mutex."""

    def __init__(self, design: str) -> None:
        self.design = design
        self.lock = Lock()
        self.rows: list[Row] = []
        self.units: list[str] = []  # the owner of each unit; empty: on sale
        self.promised = 0
        self.reserved: set[str] = set()

    def open(self, stock: int) -> None:
        with self.lock:
            self.units = [""] * stock
            self.promised = 0
            self.reserved = set()

    def stock(self) -> int:
        with self.lock:
            return self.units.count("")

    def reserve(self, user: str) -> tuple[int, Any]:
        with self.lock:
            if len(self.reserved) >= len(self.units):
                return 409, {"error": "sold out"}
            self.reserved.add(user)
            return 200, {}

    def buy(self, user: str) -> tuple[int, Any]:
        with self.lock:
            own = [row for row in self.rows if row.user == user]
            if self.design == "limited" and own:
                return 200, {"order": own[0].number}
            if self.design == "confirmed" and user not in self.reserved:
                return 402, {"error": "reserve first"}
            if self.design == "queued":
                if self.promised >= len(self.units):
                    return 409, {"error": "sold out"}
                self.promised += 1
                Timer(WRITTEN_AFTER_SECONDS, self.write, [user]).start()
                return 202, {}
            if "" not in self.units:
                return 409, {"error": "sold out"}
            return 201, {"order": self._write(user).number}

    def write(self, user: str) -> None:
        with self.lock:
            self._write(user)

    def _write(self, user: str) -> Row:
        self.units[self.units.index("")] = user
        key = len(self.rows) + 1
        own = sum(row.user == user for row in self.rows) + 1
        number = own if self.design == "numbered" else f"R-{key:06}"
        self.rows.append(Row(key, user, number))
        return self.rows[-1]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    shop: Shop

    def do_GET(self) -> None:
        if self.path == "/orders":
            return self._answer(200, [{"id": row.id, "user": row.user} for row in self.shop.rows])
        return self._answer(200, self.shop.stock())

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length) or "{}")
        if self.path == "/open":
            self.shop.open(body["stock"])
            return self._answer(200, None)
        step = self.shop.reserve if self.path == "/reserve" else self.shop.buy
        return self._answer(*step(body["user"]))

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Write nothing: pytest reads the rest."""


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


if __name__ == "__main__":
    Handler.shop = Shop(sys.argv[2])
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
