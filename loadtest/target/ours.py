"""The shop of this project as a target. How its buyers buy stands in the locustfile."""

import json
from collections.abc import Mapping
from typing import Any

from loadtest.judge.sale_record import OUTCOMES
from loadtest.stack.client import Shop
from loadtest.target.answer import NONE, Answer, error
from loadtest.target.target import Target


class OurShop(Target):
    """Buys under one strategy. Its orders have keys, so that asking again is safe."""

    repeatable = True
    records_keys = True
    settles_s = 0.0  # stock() waits for what the sale has promised

    def __init__(self, shop: Shop, *, lock: str, product: str, hold_ms: int = 0) -> None:
        super().__init__(shop.url)
        self.shop = shop
        self.name = lock
        self.product = product
        self.hold_ms = hold_ms
        self.report: Mapping[str, Any] = {}

    def open(self, stock: int) -> None:
        opened = self.shop.restock(product=self.product, stock=stock, lock=self.name)
        self.sale = int(opened["sale"])

    def read(self, response: Any) -> Answer:
        """No answer, or one not from the shop, leaves open what happened: `unknown`. One whose
        status and outcome contradict each other is an error: clients look at either."""
        try:
            body = dict(json.loads(response.text or ""))
            outcome = body["outcome"]
        except (ValueError, TypeError, KeyError):
            return NONE
        if outcome not in OUTCOMES or response.status_code == 500:
            return NONE
        if (outcome == "sold") != (response.status_code < 400):
            return error(f"{outcome} was answered with status {response.status_code}")
        retry_after = str((response.headers or {}).get("Retry-After", ""))
        after = 0.0
        if outcome == "full" and retry_after.isdigit():
            after = float(retry_after)
        reason = str(body.get("error", ""))
        return Answer(outcome, body.get("order"), reason, after=after, body=body)

    def orders(self) -> list[Mapping[str, Any]]:
        return list(self.shop.orders(self.sale))

    def stock(self) -> int:
        """Once what the sale has promised is settled; the orders are asked for after it."""
        self.report = self.shop.settled_sale(self.sale)
        return int(self.report["stock_left"])

    def unsettled(self) -> int | None:
        """As of the report that stock() was read from."""
        promises: int | None = self.report.get("unsettled", 0)
        return promises
