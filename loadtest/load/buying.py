"""One purchase from a client's first request to its last answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from loadtest.judge.verdict import ASK_AGAIN
from loadtest.load.figures import Sale
from loadtest.load.plan import Plan, buyer_name
from loadtest.stack.client import Shop
from loadtest.target.answer import CORRECT, Answer
from loadtest.target.ours import FORM, OurShop


@dataclass
class Purchases:
    """Buys as a plan says.

    pause  sleeps for some tenths of a second, before a buyer asks again
    over   whether it is too late to ask again
    """

    plan: Plan
    pause: Callable[[], object]
    over: Callable[[], bool]

    def __post_init__(self) -> None:
        plan = self.plan
        self._reader = OurShop(Shop(plan.hosts[0]), lock=plan.lock, product="")
        common: dict[str, object] = {"lock": plan.lock}
        common |= {"hold_ms": plan.hold_ms} if plan.hold_ms else {}
        self._forms = [
            urlencode({**common, "product": product, "sale": sale})
            for product, sale in zip(plan.products, plan.sales, strict=True)
        ]
        self._name = f"POST /buy [{plan.lock}]"

    def buy(
        self, client: Any, product: int, who: int, number: int, intended: float | None = None
    ) -> Sale:
        """Buy one unit. The sale is opened already; `client` is a session of Locust's.

        intended  when the buyer was to arrive, in monotonic seconds; by default, now
        """
        sent = time.monotonic()
        earlier: list[str] = []
        while True:
            answer = self._ask(client, product, who, number)
            if answer.outcome not in ASK_AGAIN or self.over():
                break
            earlier.append(answer.outcome)
            self.pause()
        order = answer.order if isinstance(answer.order, int) else None
        began = sent if intended is None else intended
        replayed = bool(answer.body.get("replayed"))
        at = began, sent, time.monotonic()
        return Sale(product, who, number, *at, answer.outcome, order, earlier, replayed)

    def _ask(self, client: Any, product: int, who: int, number: int) -> Answer:
        """Send the purchase once, and report it to Locust: what a correct shop answers is a
        success."""
        with client.post(
            "/buy",
            name=self._name,
            data=f"{self._forms[product]}&buyer={buyer_name(who, number)}",
            headers={"Idempotency-Key": self.plan.key(who, number), "Content-Type": FORM},
            catch_response=True,
        ) as response:
            answer = self._reader.read(response)
            if answer.outcome in CORRECT:
                response.success()
            else:
                response.failure(f"{response.status_code} {answer.outcome}")
        return answer
