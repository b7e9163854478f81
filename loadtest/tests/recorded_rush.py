"""A whole rush as nodes and buyers record it, as a base for planted violations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.evidence import EVIDENCE
from loadtest.judge.verdict import Judgement
from loadtest.tests.history_builder import PRODUCT, HistoryBuilder

SALE = 7
#: Nodes, processes and threads that serve in turn.
WHERE: tuple[dict[str, Any], ...] = (
    {"node": "A", "pid": 12, "thread": 1201},
    {"node": "B", "pid": 22, "thread": 2201},
    {"node": "A", "pid": 13, "thread": 1301},
)


@dataclass
class RecordedRush:
    """An exact rush of `buyers` for `stock` units, who are served one after another, 20 ms each."""

    lock: str = "redis"
    stock: int = 4
    buyers: int = 6
    history: HistoryBuilder = field(default_factory=HistoryBuilder)

    def __post_init__(self) -> None:
        self.evidence = EVIDENCE[self.lock]
        self.history.stock = self.stock
        self.history.buyer_fields = {"lock": self.lock, "sale": SALE}
        for number in range(self.buyers):
            self.serve(number, max(0, self.stock - number))

    @property
    def keys(self) -> list[str]:
        return [f"buyer-{number}" for number in range(self.buyers)]

    def record(self, number: int, ms: float, f: str, type: str = "ok", **fields: Any) -> None:
        """Record a node's event of a buyer, `ms` after its turn began."""
        where = WHERE[number % len(WHERE)]
        self.history.record(20 * number + ms, f"buyer-{number}", f, type, **where, **fields)

    def record_begin(self, number: int, ms: float) -> None:
        """Record that a node began the purchase of a buyer."""
        self.record(number, ms, "begins", "invoke", lock=self.lock, product=PRODUCT, sale=SALE)

    def serve(self, number: int, amount: int) -> None:
        """Record one buyer's turn, with `amount` units left: asked at 1 ms, answered at 19."""
        key = f"buyer-{number}"
        fence = 100 + number if self.evidence.fenced else None
        token = f"token-{number}"
        self.history.ask(20 * number + 1, key)
        self.record(number, 2, "arrives")
        self.record_begin(number, 3)
        if self.evidence.locked:
            self.record(number, 4, "acquire", "invoke")
            grant: dict[str, Any] = {"token": token, "fence": fence, "waited_ms": 1.0}
            self.record(number, 5, "acquired", lock_name=f"{self.lock}:{PRODUCT}", **grant)
        order = self._sell(number, amount, fence) if amount else None
        if not amount:
            self._look(number, amount)
        if self.evidence.locked:
            self.record(number, 13, "release", "invoke", token=token)
            release: dict[str, Any] = {"outcome": "released", "held_ms": 9.0}
            self.record(number, 14, "released", token=token, **release)
        self.history.answer(20 * number + 19, key, "sold" if amount else "sold_out", order)
        answer: Any = self.history.events[-1]
        if amount:
            answer.update({"sold_in": SALE, "fence": fence, "stock_seen": amount})
        if amount and self.evidence.locked:
            answer["released"] = "released"

    def _look(self, number: int, amount: int) -> None:
        """Record that a node reserves a unit, if the strategy does, and reads the stock."""
        if self.evidence.reserves:
            self.record(number, 6, "reserve", "invoke")
        if self.evidence.promises:
            return
        if self.evidence.reserves and amount:
            self.record(number, 6.5, "reserved")
        self.record(number, 7, "after_read", amount=amount, sale=SALE)

    def _sell(self, number: int, amount: int, fence: int | None) -> int:
        """Record an order and return its number."""
        self._look(number, amount)
        order = self.history.first_order + len(self.history.orders)
        if self.evidence.promises:
            self.record(number, 10, "reserved", order=order, amount=amount, sale=SALE)
        else:
            self.record(number, 10, "before_commit", "invoke", order=order, sale=SALE)
        key = f"buyer-{number}"
        self.history.orders.append(
            {
                "order": order,
                "key": key,
                "lock": self.lock,
                "fence": fence,
                "amount": 1,
                "stock_seen": amount,
                "buyer": key,
                "product": PRODUCT,
                "time": f"2026-01-02T03:04:{number:02}+00:00",
            }
        )
        if self.evidence.locked:
            self.record(number, 12, "after_commit", sale=SALE)
        return order

    def judge(self, **fields: Any) -> Judgement:
        """Judge the rush as demo and matrix do; `fields` are fields of the judgement."""
        usual_fields: dict[str, Any] = {
            "buyer_keys": self.keys,
            "arrivals": self.buyers,
            "strategy": self.lock,
            "sale": SALE,
            "product": PRODUCT,
            "nodes_recorded": True,
            "undisturbed": True,
            "ttl": None,
        }
        return self.history.judge(**{**usual_fields, **fields})

    # --- changes --------------------------------------------------------------------------------

    def node_events(self, f: str, number: int | None = None) -> list[Any]:
        """Return the nodes' events of this kind, of one buyer or of all."""
        return [
            event
            for event in self.history.events
            if event["by"] == "node"
            and event["f"] == f
            and number in (None, int(event["attempt"].rpartition("-")[2]))
        ]

    def remove_node_events(self, *kinds: str) -> None:
        """Remove the nodes' events of these kinds; without kinds, all."""
        self.history.events = [
            event
            for event in self.history.events
            if event["by"] != "node" or (kinds and event["f"] not in kinds)
        ]

    def change_node_events(
        self, f: str, number: int | None = None, later_ms: float = 0, **fields: Any
    ) -> None:
        """Set fields of the nodes' events of this kind, and move them to a later time."""
        for event in self.node_events(f, number):
            event.update(fields)
            event["t"] += round(later_ms * 1e6)

    def buyer_events(self, number: int) -> list[Any]:
        """Return the requests of a buyer and their answers."""
        return [
            event
            for event in self.history.events
            if event["by"] == "buyer" and event["attempt"] == f"buyer-{number}"
        ]

    def change_sold_answers(self, key: str = "", **fields: Any) -> None:
        """Set fields of the answers `sold`, to one buyer or to all."""
        events: list[Any] = self.history.events
        for event in events:
            if event["by"] == "buyer" and event["type"] == "ok" and key in ("", event["attempt"]):
                event.update(fields)

    def change_answer(self, number: int, outcome: str, **fields: Any) -> None:
        """Replace the answer to a buyer; `fields` are those of its event."""
        answers = [event for event in self.buyer_events(number) if event["type"] != "invoke"]
        self.history.events = [event for event in self.history.events if event not in answers]
        order = fields.pop("order", None)
        self.history.answer(20 * number + 19, f"buyer-{number}", outcome, order)
        answer: Any = self.history.events[-1]
        answer.update(fields)

    def ask_again(self, number: int, **fields: Any) -> None:
        """Let a buyer repeat its request at 200 ms; its order is replayed.

        fields  fields of the answer's event
        """
        key = f"buyer-{number}"
        order = self.history.orders[number]
        self.history.ask(200, key)
        self.record(number, 202 - 20 * number, "arrives")
        self.record_begin(number, 203 - 20 * number)
        self.history.answer(210, key, "sold", order["order"])
        replay = {"replayed": True, "sold_in": SALE, "stock_seen": order["stock_seen"]}
        answer: Any = self.history.events[-1]
        answer.update({**replay, **fields})


#: A plant changes a rush, and may return fields of the judgement.
Plant = Callable[[RecordedRush], Any]
#: Every plant, with a strategy and the rule that finds it under that strategy. If it is empty,
#: no rule needs to find it, but the rush must have no verdict.
PLANTS: list[tuple[Plant, str, str]] = []
ALL = tuple(EVIDENCE)
FENCED = tuple(lock for lock, evidence in EVIDENCE.items() if evidence.fenced)
LOCKED = tuple(lock for lock, evidence in EVIDENCE.items() if evidence.locked)
#: A strategy for each way in which the judge knows the stock that a buyer saw.
EACH_WAY = ("redis", "row-lock", "conditional", "counter", "buckets", "skip-locked", "reserve")


def plant(*rules: str, locks: Sequence[str] = ("redis",)) -> Callable[[Plant], Plant]:
    """Register a function that plants a violation of these rules under these strategies."""

    def add(change_rush: Plant) -> Plant:
        PLANTS.extend((change_rush, lock, rule) for lock in locks for rule in rules)
        return change_rush

    return add
