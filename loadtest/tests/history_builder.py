"""A builder of artificial histories, with a method for each kind of event."""

from collections.abc import Collection
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from loadtest.judge.finding import Finding
from loadtest.judge.history import Event
from loadtest.judge.intervals import ProductHistory, Request
from loadtest.judge.outcomes import get_event_type
from loadtest.judge.verdict import Judgement

#: The product of every sale. Its name has the form FAULT-STRATEGY, as in `make faults`.
PRODUCT = "pause-token"


@dataclass
class HistoryBuilder:
    """Builds the history of a sale: its events and its orders.

    docs/history.md describes the fields of an event. In each method `ms` is the time of the event,
    in milliseconds since the start; `key` is the idempotency key of the buyer; `origin` may have
    another node, pid and thread than the default ones of record().

    stock         the units at the beginning
    final_stock   the stock that the shop shows at the end; None: `stock` less the orders
    first_order   the number of the first order
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

    def _add_buyer_event(self, ms: float, key: str, **fields: Any) -> None:
        common = {"by": "buyer", "f": "buy", "attempt": key, "product": PRODUCT}
        self._add(ms, **common, **self.buyer_fields, **fields)

    def request(self, ms: float, key: str, node: str = "A") -> None:
        """Record that a buyer sends a request to a node."""
        self._add_buyer_event(ms, key, type="invoke", node=node)

    def answer(
        self,
        ms: float,
        key: str,
        outcome: str,
        order: int | str | None = None,
        **fields: Any,
    ) -> None:
        """Record the answer to a buyer.

        order   the order's number, if the outcome is `sold`
        fields  further fields of the answer's event
        """
        sold_fields = {"order": order, "replayed": False} if outcome == "sold" else {}
        answer_fields = {"outcome": outcome, **sold_fields, **fields}
        self._add_buyer_event(ms, key, type=get_event_type(outcome), **answer_fields)

    def record(self, ms: float, key: str, f: str, type: str = "ok", **fields: Any) -> None:
        """Record an event of a node.

        fields  fields of the event; without `node` and `pid` it is an event of process 12 of node A
        """
        self._add(ms, by="node", f=f, type=type, attempt=key, **{"node": "A", "pid": 12, **fields})

    def acquire(
        self, began_ms: float, granted_ms: float, key: str, fence: int | None = None, **origin: Any
    ) -> None:
        """Record that a buyer's node begins to acquire the lock, and gets it with this fence.

        origin  the node, pid and thread of the two events
        """
        self.record(began_ms, key, "acquire", "invoke", **origin)
        grant: dict[str, Any] = {
            "token": f"{key} at {granted_ms}",
            "fence": fence,
            "waited_ms": granted_ms - began_ms,
        }
        self.record(granted_ms, key, "acquired", **grant, **origin)

    def read(self, ms: float, key: str, amount: int, **origin: Any) -> None:
        """Record that a buyer's node read a stock of `amount` units."""
        self.record(ms, key, "after_read", amount=amount, **origin)

    def commit(
        self, ms: float, key: str, stock_seen: int, fence: int | None = None, **origin: Any
    ) -> int:
        """Write an order, and record its COMMIT, which takes 0.5 ms. Return the order's number.

        ms          the time at which the COMMIT begins
        stock_seen  the stock that was read for the order
        origin      the node, pid and thread of the two events
        """
        self.record(ms, key, "before_commit", "invoke", **origin)
        number = self.first_order + len(self.orders)
        order = {"order": number, "key": key, "fence": fence, "stock_seen": stock_seen}
        self.orders.append(order)
        self.record(ms + 0.5, key, "after_commit", **origin)
        return number

    def release(self, ms: float, key: str, outcome: str = "released", **origin: Any) -> None:
        """Record the release of the lock, which takes 0.5 ms.

        outcome  released, expired or unknown
        origin   the node, pid and thread of the two events
        """
        self.record(ms, key, "release", "invoke", **origin)
        self.record(ms + 0.5, key, "released", outcome=outcome, **origin)

    def add_fault(self, ms: float, phase: str, what: str, type: str = "") -> None:
        """Record a phase of the fault `pause`, such as `fire` or `heal`.

        what  the sentence about the phase that the timeline shows
        type  the type of the event; empty: `invoke` for the phase `fire`, otherwise `ok`
        """
        default_type = "invoke" if phase == "fire" else "ok"
        event = {"by": "fault", "f": "pause", "type": type or default_type}
        self._add(ms, **event, phase=phase, what=what)

    def buy(self, ms: float, key: str, amount: int, fence: int | None = None) -> None:
        """Record a whole purchase under the lock, which takes 9 ms.

        amount  the stock that the node reads; if it is 0, nothing is sold: the answer is `sold_out`
        """
        self.request(ms, key)
        self.acquire(ms + 1, ms + 2, key, fence)
        self.read(ms + 3, key, amount)
        order = self.commit(ms + 4, key, amount, fence) if amount else None
        self.release(ms + 6, key)
        self.answer(ms + 9, key, "sold" if amount else "sold_out", order)

    def build(self) -> ProductHistory:
        """Return the history of the sale, with its events in the order of their times."""
        return ProductHistory(sorted(self.events, key=itemgetter("t")))

    @property
    def stock_left(self) -> int:
        """The stock at the end."""
        return self.stock - len(self.orders) if self.final_stock is None else self.final_stock

    def judge(
        self,
        *,
        stock_left: int | None = None,
        buyers_without_retry: Collection[str] = (),
        **fields: Any,
    ) -> Judgement:
        """Judge the sale.

        stock_left            the stock at the end; None: that of the property `stock_left`
        buyers_without_retry  the keys of buyers who need not repeat a request without an answer
        fields                further arguments of Judgement(), or replacements of the usual ones
        """
        return Judgement(
            events=self.build().events,
            stock_left=self.stock_left if stock_left is None else stock_left,
            orders=self.orders,
            buyers_without_retry=frozenset(buyers_without_retry),
            # The requested stock, and the stock with which the sale began.
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
    """Return an exact sale of two units in which three buyers buy one after another.

    victim and rival-1 each buy a unit, with the orders 31 and 32. rival-2 is answered `sold_out`.

    run  the prefix of the buyers' keys; if it is empty, the keys have no prefix
    """
    sale = HistoryBuilder(stock=2)
    for number, name in enumerate(("victim", "rival-1", "rival-2")):
        key = f"{run}/{name}" if run else name
        units_left = 2 - number
        sale.buy(20 * number, key, units_left, fence=number + 1)
    return sale


def require_only_finding(judgement: Judgement, rule: str) -> Finding:
    """Assert that a judgement has one finding, and that this rule found it. Return the finding."""
    (finding,) = judgement.findings
    assert finding.rule == rule
    return finding
