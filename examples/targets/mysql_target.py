"""How the load test buys from mysql_shop.py, and reads orders and stock from its database."""

import os
from typing import Any

from loadtest.target import Answer, Buyer, Order, Target, error, sold, sold_out, sql
from servers.embedded import VAR


class MySqlShop(Target):
    """The shop in mysql_shop.py, as the load test sees it."""

    name = "mysql"

    def open(self, stock: int) -> None:
        self.sql("UPDATE shop_product SET stock = %s", stock)

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
        return [Order(*row) for row in self.sql("SELECT id, buyer FROM shop_order")]

    def stock(self) -> int:
        return int(self.sql("SELECT stock FROM shop_product")[0][0])

    def sql(self, query: str, *values: Any) -> Any:
        # examples.targets writes the URL of the database to the file when it starts the shop.
        url = os.environ.get("SHOP_DATABASE") or (VAR / "targets" / "mysql" / "dsn").read_text()
        return sql(url, query, *values)
