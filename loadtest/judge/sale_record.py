"""What the judge looks at: the orders of one sale, the replies to its buyers, its history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from loadtest.judge.intervals import Commit, Hold, ProductHistory, Request

#: Every outcome that POST /buy answers with, or a buyer concludes from having no answer.
OUTCOMES = ("sold", "sold_out", "busy", "lost", "unavailable", "throttled", "error", "unknown")


@dataclass(frozen=True, slots=True)
class Reply:
    """The last reply to one buyer.

    key      the buyer's Idempotency-Key
    outcome  one of OUTCOMES
    order    the order's number, when sold
    """

    key: str
    outcome: str
    order: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation: what no correct sale shows.

    rule      its name, one of those that `summary.json` lists as violations
    what      the evidence, one sentence
    attempts  the keys of the first case
    spoils    whether a sale with it is not exact, whatever its totals
    """

    rule: str
    what: str
    attempts: tuple[str, ...] = ()
    spoils: bool = True


def more(cases: Sequence[object]) -> str:
    """How many cases there are beside the first."""
    return f" ({len(cases) - 1} more)" if len(cases) > 1 else ""


@dataclass(frozen=True)
class Record:
    """One sale that is over.

    orders   as GET /sales/<id>/orders has them
    replies  the last reply to each buyer
    history  the events of the sale's product, if any were recorded
    """

    initial_stock: int
    stock_left: int
    orders: Sequence[Mapping[str, Any]]
    replies: Sequence[Reply]
    history: ProductHistory = field(default_factory=ProductHistory)

    @cached_property
    def committed(self) -> list[Mapping[str, Any]]:
        """The orders in the order of their commits, which is that of their numbers: every strategy
        writes the stock first, and PostgreSQL lets nobody else write that row before the commit."""
        return sorted(self.orders, key=lambda order: int(order["order"]))

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The order of each key that has one."""
        return {order["key"]: order["order"] for order in self.orders}

    @property
    def lost_updates(self) -> int:
        """Orders less units that left the shelf; not 0 where a decrement was erased."""
        return len(self.orders) - (self.initial_stock - self.stock_left)

    @property
    def oversold(self) -> int:
        """Units that were promised beyond the stock: orders, and answers `sold` to buyers who have
        no order any more."""
        gone = [key for key in self.acknowledged if key not in self.number_of]
        return max(0, len(self.orders) + len(gone) - self.initial_stock)

    @cached_property
    def undersold(self) -> int:
        """Units that buyers who were answered could have bought, and nobody did."""
        answered = sum(not self.gave_up(buyer) for buyer in self.buyers)
        return max(0, min(self.initial_stock, answered) - len(self.orders))

    @property
    def outcomes(self) -> dict[str, int]:
        """How many buyers got each outcome as their last reply."""
        count = Counter(dict.fromkeys(OUTCOMES, 0))
        count.update(buyer.outcome for buyer in self.buyers)
        return dict(count)

    @cached_property
    def units_left(self) -> bool:
        """Whether something is left to sell, by the shelf or by the orders."""
        return self.stock_left > 0 or len(self.orders) < self.initial_stock

    @property
    def requests(self) -> list[Request]:
        return self.history.requests

    @cached_property
    def requests_of(self) -> dict[str, list[Request]]:
        found: dict[str, list[Request]] = {}
        for request in self.requests:
            found.setdefault(request.attempt, []).append(request)
        return found

    @property
    def holds(self) -> list[Hold]:
        return self.history.holds

    @property
    def commits(self) -> list[Commit]:
        return self.history.commits

    @cached_property
    def buyers(self) -> list[Reply]:
        """The last reply to everybody who asked; `unknown` to a buyer whom nobody answered."""
        answered = {buyer.key for buyer in self.replies}
        silent = [Reply(key, "unknown") for key in self.requests_of if key not in answered]
        return [*self.replies, *silent]

    @cached_property
    def acknowledged(self) -> dict[str, set[int | None]]:
        """The orders that any answer to each key named."""
        found: dict[str, set[int | None]] = {}
        for buyer in self.replies:
            if buyer.outcome == "sold":
                found.setdefault(buyer.key, set()).add(buyer.order)
        for request in self.requests:
            if request.type == "ok":
                found.setdefault(request.attempt, set()).add(request.order)
        return found

    @cached_property
    def recovered(self) -> dict[str, int]:
        """By key: orders that no answer named, of buyers for whom an answer had left it open."""
        asked = {buyer.key for buyer in self.buyers if not self.was_refused(buyer)}
        return {
            key: number
            for key, number in self.number_of.items()
            if key in asked and key not in self.acknowledged
        }

    def was_refused(self, buyer: Reply) -> bool:
        """Whether every answer to the buyer was a definite no."""
        asked = self.requests_of.get(buyer.key)
        if asked is None:  # only the last answer is known: an earlier one may have been `unknown`
            return buyer.outcome == "sold_out"
        return all(request.type == "fail" for request in asked)

    def gave_up(self, buyer: Reply) -> bool:
        """Whether a buyer got no answer, has no order and did not ask again (its node was killed,
        say). Such a buyer shows nothing of how the sale went on."""
        asked = self.requests_of.get(buyer.key)
        if asked is None or buyer.outcome != "unknown" or buyer.key in self.number_of:
            return False
        return all(before.type != "info" for before in asked[:-1])
