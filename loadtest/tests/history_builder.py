"""Writes made-up histories: one call per event, times in milliseconds."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.finding import Finding
from loadtest.judge.history import Event
from loadtest.judge.intervals import ProductHistory, Request, event_type
from loadtest.judge.verdict import Judgement

PRODUCT = "pause-token"


@dataclass
class HistoryBuilder:
    """A sale of `stock` units: its events and its orders.

    shelf      stock that the shop shows at the end; None: what conservation leaves
    of_buyers  fields of each event of a buyer, besides the product
    """

    stock: int = 2
    shelf: int | None = None
    events: list[Event] = field(default_factory=list)
    orders: list[dict[str, Any]] = field(default_factory=list)
    first_order: int = 31
    of_buyers: dict[str, Any] = field(default_factory=dict)

    def _add(self, ms: float, **fields: Any) -> None:
        event: Any = {"t": round(ms * 1e6), **fields}
        self.events.append(event)

    def asks(self, ms: float, key: str, node: str = "A") -> None:
        buy = {"by": "buyer", "f": "buy", "attempt": key, "product": PRODUCT, "node": node}
        self._add(ms, type="invoke", **buy, **self.of_buyers)

    def answered(self, ms: float, key: str, outcome: str, order: int | str | None = None) -> None:
        more = {"order": order, "replayed": False} if outcome == "sold" else {}
        buy = {"by": "buyer", "f": "buy", "attempt": key, "product": PRODUCT}
        self._add(ms, type=event_type(outcome), outcome=outcome, **buy, **self.of_buyers, **more)

    def at(self, ms: float, key: str, f: str, type: str = "ok", **fields: Any) -> None:
        """A node recorded an event. It is A, process 12, unless `fields` say otherwise."""
        self._add(ms, by="node", f=f, type=type, attempt=key, **{"node": "A", "pid": 12, **fields})

    def acquires(
        self, asked: float, got: float, key: str, fence: int | None = None, **where: Any
    ) -> None:
        self.at(asked, key, "acquire", "invoke", **where)
        token = f"{key} at {got}"
        self.at(got, key, "acquired", token=token, fence=fence, waited_ms=got - asked, **where)

    def reads(self, ms: float, key: str, amount: int, **where: Any) -> None:
        self.at(ms, key, "after_read", amount=amount, **where)

    def commits(
        self, ms: float, key: str, seen: int, fence: int | None = None, **where: Any
    ) -> int:
        """Commit an order. Returns its number."""
        self.at(ms, key, "before_commit", "invoke", **where)
        number = self.first_order + len(self.orders)
        self.orders.append({"order": number, "key": key, "fence": fence, "stock_seen": seen})
        self.at(ms + 0.5, key, "after_commit", **where)
        return number

    def releases(self, ms: float, key: str, outcome: str = "released", **where: Any) -> None:
        self.at(ms, key, "release", "invoke", **where)
        self.at(ms + 0.5, key, "released", outcome=outcome, **where)

    def fault(self, ms: float, phase: str, what: str, type: str = "") -> None:
        kind = type or {"fire": "invoke"}.get(phase, "ok")
        self._add(ms, by="fault", f="pause", type=kind, phase=phase, what=what)

    def buys(self, ms: float, key: str, amount: int, fence: int | None = None) -> None:
        """A whole purchase in 10 ms, alone under the lock, from a stock of `amount`."""
        self.asks(ms, key)
        self.acquires(ms + 1, ms + 2, key, fence)
        self.reads(ms + 3, key, amount)
        if amount:
            order = self.commits(ms + 4, key, amount, fence)
        self.releases(ms + 6, key)
        if amount:
            self.answered(ms + 9, key, "sold", order)
        else:
            self.answered(ms + 9, key, "sold_out")

    def history(self) -> ProductHistory:
        return ProductHistory(sorted(self.events, key=lambda event: event["t"]))

    def left(self) -> int:
        return self.stock - len(self.orders) if self.shelf is None else self.shelf

    def judged(
        self,
        *,
        left: int | None = None,
        excused: Collection[str] = (),
        **more: Any,
    ) -> Judgement:
        """The judgement; `more` are fields of it."""
        return Judgement(
            events=self.history().events,
            stock_left=self.left() if left is None else left,
            orders=self.orders,
            excused_buyers=frozenset(excused),
            **{"initial_stock": self.stock, "opening_stock": self.stock, "ttl": 1.0, **more},
        )

    @property
    def last(self) -> dict[str, Request]:
        """The last request of each buyer."""
        return {request.attempt: request for request in self.history().requests}

    def without(self, key: str) -> None:
        """Remove the events of this buyer, but not its order."""
        self.events = [event for event in self.events if event.get("attempt") != key]


def one_after_the_other(run: str = "") -> HistoryBuilder:
    """Two units: the victim and rival-1 buy, rival-2 is too late. `run` begins their keys."""
    shop = HistoryBuilder(stock=2)
    for number, name in enumerate(("victim", "rival-1", "rival-2")):
        shop.buys(20 * number, f"{run}/{name}" if run else name, 2 - number, fence=number + 1)
    return shop


def only(judged: Judgement, rule: str) -> Finding:
    """The one finding; `rule` alone was broken."""
    assert judged.violations == (rule,)
    return judged.findings[0]
