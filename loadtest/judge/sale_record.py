"""What the judge has before it: the orders of one sale, what its buyers were told, its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loadtest.judge.history import Commit, Event, Hold, Request, commits, holds, requests


@dataclass(frozen=True, slots=True)
class Told:
    """What one buyer was told last.

    key      the buyer's Idempotency-Key
    outcome  one of OUTCOMES
    order    the order's number, when sold
    """

    key: str
    outcome: str
    order: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What no correct sale shows.

    rule      its name, one of those that `summary.json` lists as violations
    what      the evidence, one sentence
    attempts  the keys it is about; where there are many cases, those of the first one
    spoils    whether a sale with it can no longer be called exact, whatever its totals
    """

    rule: str
    what: str
    attempts: tuple[str, ...] = ()
    spoils: bool = True


def more(cases: Sequence[object]) -> str:
    """How many cases there are beside the one that is told."""
    return f" ({len(cases) - 1} more)" if len(cases) > 1 else ""


@dataclass(frozen=True)
class Record:
    """One sale that is over. `orders` as GET /sales/<id>/orders gives them, `told` one entry per
    buyer, `history` the events of the sale's product, if any were recorded."""

    initial_stock: int
    stock_left: int
    orders: Sequence[Mapping[str, Any]]
    told: Sequence[Told]
    history: Sequence[Event] = ()

    @cached_property
    def committed(self) -> list[Mapping[str, Any]]:
        """The orders as they were committed: by number, because every strategy writes the stock
        first, and PostgreSQL lets nobody else write that row before the commit."""
        return sorted(self.orders, key=lambda order: int(order["order"]))

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The order of each key that has one."""
        return {order["key"]: order["order"] for order in self.orders}

    @cached_property
    def lost_updates(self) -> int:
        return len(self.orders) - (self.initial_stock - self.stock_left)

    @cached_property
    def units_left(self) -> bool:
        """Whether there was something left to sell, by the shelf or by the orders."""
        return self.stock_left > 0 or len(self.orders) < self.initial_stock

    @cached_property
    def requests(self) -> list[Request]:
        return requests(self.history)

    @cached_property
    def requests_of(self) -> dict[str, list[Request]]:
        found: dict[str, list[Request]] = {}
        for request in self.requests:
            found.setdefault(request.attempt, []).append(request)
        return found

    @cached_property
    def holds(self) -> list[Hold]:
        return holds(self.history)

    @cached_property
    def commits(self) -> list[Commit]:
        return commits(self.history)

    @cached_property
    def buyers(self) -> list[Told]:
        """Everybody who asked: a buyer whom nobody answered was told `unknown`."""
        told = {buyer.key for buyer in self.told}
        silent = [Told(key, "unknown") for key in self.requests_of if key not in told]
        return [*self.told, *silent]

    @cached_property
    def acknowledged(self) -> dict[str, set[int | None]]:
        """The orders that each key was told of, by any answer."""
        found: dict[str, set[int | None]] = {}
        for buyer in self.told:
            if buyer.outcome == "sold":
                found.setdefault(buyer.key, set()).add(buyer.order)
        for request in self.requests:
            if request.type == "ok":
                found.setdefault(request.attempt, set()).add(request.order)
        return found

    @cached_property
    def recovered(self) -> dict[str, int]:
        """The orders that no buyer was told of, though it may have been: by key."""
        asked = {buyer.key for buyer in self.buyers if not self.was_refused(buyer)}
        return {
            key: number
            for key, number in self.number_of.items()
            if key in asked and key not in self.acknowledged
        }

    def was_refused(self, buyer: Told) -> bool:
        """Whether every answer to the buyer was a definite no: nothing was left open by any."""
        asked = self.requests_of.get(buyer.key)
        if asked is None:  # only the last answer is known: an earlier one may have been `unknown`
            return buyer.outcome == "sold_out"
        return all(request.type == "fail" for request in asked)

    def gave_up(self, buyer: Told) -> bool:
        """Whether a buyer was left without an answer, has no order and did not ask again, because
        its node was killed, say. It says nothing about how the sale went on."""
        asked = self.requests_of.get(buyer.key)
        if asked is None or buyer.outcome != "unknown" or buyer.key in self.number_of:
            return False
        return all(before.type != "info" for before in asked[:-1])
