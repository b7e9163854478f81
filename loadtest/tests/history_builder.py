"""Builds artificial histories: one call for each event, with times in milliseconds."""

from collections.abc import Collection
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from loadtest.judge.finding import Finding
from loadtest.judge.history import Event
from loadtest.judge.intervals import ProductHistory, Request
from loadtest.judge.outcomes import event_type
from loadtest.judge.verdict import Judgement

PRODUCT = "pause-token"


@dataclass
class HistoryBuilder:
    """A sale of `stock` units: its events and its orders.

    final_stock   the stock that the shop shows at the end; None: `stock` less the orders
    buyer_fields  fields of each event of a buyer, besides the product
    """

    stock: int = 2
    final_stock: int | None = None
    events: list[Event] = field(default_factory=list)
    orders: list[dict[str, Any]] = field(default_factory=list)
    first_order: int = 31
    buyer_fields: dict[str, Any] = field(default_factory=dict)

    def _add(self, ms: float, **fields: Any) -> None:
        event: Any = {"t": round(ms * 1e6), **fields}
        self.events.append(event)

    def _add_of_buyer(self, ms: float, key: str, **fields: Any) -> None:
        common = {"by": "buyer", "f": "buy", "attempt": key, "product": PRODUCT}
        self._add(ms, **common, **self.buyer_fields, **fields)

    def ask(self, ms: float, key: str, node: str = "A") -> None:
        """Record a request of a buyer."""
        self._add_of_buyer(ms, key, type="invoke", node=node)

    def answer(self, ms: float, key: str, outcome: str, order: int | str | None = None) -> None:
        """Record the answer to a buyer."""
        sold_fields = {"order": order, "replayed": False} if outcome == "sold" else {}
        self._add_of_buyer(ms, key, type=event_type(outcome), outcome=outcome, **sold_fields)

    def record(self, ms: float, key: str, f: str, type: str = "ok", **fields: Any) -> None:
        """Record an event of a node: of process 12 of node A, unless `fields` name others."""
        self._add(ms, by="node", f=f, type=type, attempt=key, **{"node": "A", "pid": 12, **fields})

    def acquire(
        self, asked_ms: float, granted_ms: float, key: str, fence: int | None = None, **where: Any
    ) -> None:
        self.record(asked_ms, key, "acquire", "invoke", **where)
        grant: dict[str, Any] = {
            "token": f"{key} at {granted_ms}",
            "fence": fence,
            "waited_ms": granted_ms - asked_ms,
        }
        self.record(granted_ms, key, "acquired", **grant, **where)

    def read(self, ms: float, key: str, amount: int, **where: Any) -> None:
        self.record(ms, key, "after_read", amount=amount, **where)

    def commit(
        self, ms: float, key: str, stock_seen: int, fence: int | None = None, **where: Any
    ) -> int:
        """Commit an order. Return its number."""
        self.record(ms, key, "before_commit", "invoke", **where)
        number = self.first_order + len(self.orders)
        order = {"order": number, "key": key, "fence": fence, "stock_seen": stock_seen}
        self.orders.append(order)
        self.record(ms + 0.5, key, "after_commit", **where)
        return number

    def release(self, ms: float, key: str, outcome: str = "released", **where: Any) -> None:
        self.record(ms, key, "release", "invoke", **where)
        self.record(ms + 0.5, key, "released", outcome=outcome, **where)

    def add_fault(self, ms: float, phase: str, what: str, type: str = "") -> None:
        """Record an event of the fault `pause`."""
        default_type = "invoke" if phase == "fire" else "ok"
        event = {"by": "fault", "f": "pause", "type": type or default_type}
        self._add(ms, **event, phase=phase, what=what)

    def buy(self, ms: float, key: str, amount: int, fence: int | None = None) -> None:
        """Record a whole purchase of 10 ms, alone under the lock, out of a stock of `amount`."""
        self.ask(ms, key)
        self.acquire(ms + 1, ms + 2, key, fence)
        self.read(ms + 3, key, amount)
        if amount:
            order = self.commit(ms + 4, key, amount, fence)
        self.release(ms + 6, key)
        if amount:
            self.answer(ms + 9, key, "sold", order)
        else:
            self.answer(ms + 9, key, "sold_out")

    def build(self) -> ProductHistory:
        return ProductHistory(sorted(self.events, key=itemgetter("t")))

    def stock_left(self) -> int:
        return self.stock - len(self.orders) if self.final_stock is None else self.final_stock

    def judge(
        self, *, left: int | None = None, excused: Collection[str] = (), **fields: Any
    ) -> Judgement:
        """Judge the sale; `fields` are fields of the judgement."""
        return Judgement(
            events=self.build().events,
            stock_left=self.stock_left() if left is None else left,
            orders=self.orders,
            excused_buyers=frozenset(excused),
            **{"initial_stock": self.stock, "opening_stock": self.stock, "ttl": 1.0, **fields},
        )

    @property
    def last_requests(self) -> dict[str, Request]:
        """The last request of each buyer."""
        return {request.attempt: request for request in self.build().requests}

    def remove_events(self, key: str) -> None:
        """Remove the events of this buyer, but not its order."""
        self.events = [event for event in self.events if event.get("attempt") != key]


def sequential_sale(run: str = "") -> HistoryBuilder:
    """Return a sale of two units: victim and rival-1 buy, and rival-2 is too late.

    run  the prefix of their keys
    """
    sale = HistoryBuilder(stock=2)
    for number, name in enumerate(("victim", "rival-1", "rival-2")):
        key = f"{run}/{name}" if run else name
        sale.buy(20 * number, key, 2 - number, fence=number + 1)
    return sale


def only_finding(judgement: Judgement, rule: str) -> Finding:
    """Return the only finding, and assert that it is of this rule."""
    assert judgement.violations == (rule,)
    return judgement.findings[0]
