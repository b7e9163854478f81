"""The shop of this project as a Target, the type of a shop under load test.

loadtest/locustfile.py has the requests of its buyers.
"""

import json
from collections.abc import Mapping
from typing import Any

from loadtest.judge.outcomes import OUTCOMES
from loadtest.stack.client import Shop
from loadtest.target.answer import UNKNOWN_OUTCOME, Answer, error
from loadtest.target.target import Target

#: The longest time that a buyer waits because of a Retry-After. A longer Retry-After is shortened
#: to it, so that the buyer checks its deadline at least this often.
MAX_RETRY_AFTER_SECONDS = 60.0


class OurShop(Target):
    """This project's shop under one strategy.

    Each order has the Idempotency-Key of its purchase, so buyers may repeat their requests.
    """

    repeatable = True
    is_own_shop = True
    settles_s = 0.0  # stock() itself waits until every promised order is written

    def __init__(self, shop: Shop, *, lock: str, product: str, hold_ms: int = 0) -> None:
        super().__init__(shop.url)
        self.shop = shop
        self.name = lock
        self.product = product
        self.hold_ms = hold_ms
        self.report: Mapping[str, Any] = {}

    def open(self, stock: int) -> None:
        """Open a sale of `stock` units, and set `sale` to its number."""
        opened_sale = self.shop.restock(product=self.product, stock=stock, lock=self.name)
        self.sale = int(opened_sale["sale"])

    def read(self, response: Any) -> Answer:
        """Return the meaning of the shop's answer to a purchase.

        The outcome is `unknown` if there is no answer, if the answer is not one of the shop (a
        proxy may have sent it), or if the status is 500. If the status contradicts the outcome in
        the body, the Answer is an `error`, because it is not known which of the two is right.
        """
        try:
            body = dict(json.loads(response.text or ""))
            outcome = body["outcome"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return UNKNOWN_OUTCOME
        if not isinstance(outcome, str) or outcome not in OUTCOMES or response.status_code == 500:
            return UNKNOWN_OUTCOME
        if (outcome == "sold") != (response.status_code < 400):
            return error(f"{outcome} was answered with status {response.status_code}")
        retry_after = str((response.headers or {}).get("Retry-After", ""))
        retry_after_seconds = 0.0
        if outcome == "full" and retry_after.isdecimal():
            retry_after_seconds = min(float(retry_after), MAX_RETRY_AFTER_SECONDS)
        return Answer(
            outcome,
            body.get("order"),
            why=str(body.get("error", "")),
            retry_after_seconds=retry_after_seconds,
            body=body,
        )

    def orders(self) -> list[Mapping[str, Any]]:
        """Return the orders of this sale alone."""
        return list(self.shop.orders(self.sale))

    def stock(self) -> int:
        """Wait until all promised orders are written, and return the units left.

        A promised order is one that the shop has accepted and writes later. The wait ends after
        SETTLE_TIMEOUT_SECONDS. A rush calls stock() before orders(), so that orders() returns the
        orders that were written meanwhile, too.
        """
        self.report = self.shop.wait_for_settled_sale(self.sale)
        return int(self.report["stock_left"])

    def unsettled(self) -> int | None:
        """Return the number of promised orders that were not written when stock() was called.

        Return None if the shop did not know the number.
        """
        unwritten_count: int | None = self.report.get("unsettled", 0)
        return unwritten_count
