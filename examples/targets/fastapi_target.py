"""How the load test opens a sale, buys, and reads orders and stock in fastapi_shop.py."""

from typing import Any

from loadtest.target import Answer, Buyer, Order, Target, ask, error, sold, sold_out


class FastApiShop(Target):
    """The shop in fastapi_shop.py, as the load test sees it."""

    name = "fastapi"
    warm_up = "/openapi.json"

    def open(self, stock: int) -> None:
        ask(f"{self.host}/restock/{stock}", method="POST")

    def buy(self, buyer: Buyer) -> Any:
        return buyer.client.post("/buy", params={"buyer": buyer.key}, name="POST /buy")

    def read(self, response: Any) -> Answer:
        """Return the shop's answer to POST /buy: sold, sold out or an error."""
        if response.status_code == 409:
            return sold_out()
        if response.status_code == 201:
            return sold(order=response.json()["order"])
        return error(response.text)

    def orders(self) -> list[Order]:
        # The list may also have orders of earlier sales, which the load test does not count.
        return [Order(number, buyer) for number, buyer in ask(f"{self.host}/report")["orders"]]

    def stock(self) -> int:
        return int(ask(f"{self.host}/report")["stock"])
