"""The shop of this project as a target: the first one, and written like any other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from loadtest.judge.verdict import OUTCOMES
from loadtest.stack.client import Shop
from loadtest.target.answer import NONE, Answer
from loadtest.target.target import Buyer, Target

FORM = "application/x-www-form-urlencoded"


class OurShop(Target):
    """Buys under one strategy. Its orders have keys, so that asking again is safe."""

    repeatable = True
    warm_up = "/healthz"
    settles_s = 0.0  # stock() waits for what the sale has promised

    def __init__(self, shop: Shop, *, lock: str, product: str, hold_ms: int = 0) -> None:
        super().__init__(shop.url)
        self.shop = shop
        self.name = lock
        self.product = product
        self.hold_ms = hold_ms
        self.report: Mapping[str, Any] = {}

    def open(self, stock: int) -> None:
        self.sale = int(self.shop.restock(product=self.product, stock=stock)["sale"])

    def prepare(self, buyer: Buyer) -> None:
        wanted = {"product": self.product, "lock": self.name, "buyer": buyer.name}
        wanted["sale"] = str(self.sale)  # who is late buys nothing of the next one
        if self.hold_ms:
            wanted["hold_ms"] = str(self.hold_ms)
        buyer.kept["form"] = urlencode(wanted)  # before the barrier, where it delays nobody
        buyer.client.get(self.warm_up, name="GET /healthz [warm-up]", catch_response=True)

    def buy(self, buyer: Buyer) -> Any:
        return buyer.client.post(
            "/buy",
            name=f"POST /buy [{self.name}]",
            data=buyer.kept["form"],
            headers={"Idempotency-Key": buyer.key, "Content-Type": FORM},
        )

    def read(self, response: Any) -> Answer:
        """No answer, or one not from the shop, leaves open what happened: `unknown`."""
        try:
            body = dict(json.loads(response.text or ""))
            outcome = body["outcome"]
        except (ValueError, TypeError, KeyError):
            return NONE
        if outcome not in OUTCOMES or response.status_code == 500:
            return NONE
        after = _seconds(response) if outcome == "full" else 0.0
        said = str(body.get("error", ""))
        return Answer(outcome, body.get("order"), said, after=after, body=body)

    def orders(self) -> list[Mapping[str, Any]]:
        return list(self.shop.orders(self.sale))

    def stock(self) -> int:
        """Once what the sale has promised is settled; the orders are asked for after it."""
        self.report = self.shop.settled_sale(self.sale)
        return int(self.report["stock_left"])

    def unsettled(self) -> int | None:
        """As of the report that stock() was read from."""
        many: int | None = self.report.get("unsettled", 0)
        return many


def _seconds(response: Any) -> float:
    """The Retry-After of an answer; 0 without one."""
    given = str((response.headers or {}).get("Retry-After", ""))
    return float(given) if given.isdigit() else 0.0
