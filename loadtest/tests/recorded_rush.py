"""A whole rush as nodes and buyers record it, to plant violations in. No server is needed."""

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
    """An exact rush: `buyers` come for `stock` units, one is served after the other, 20 ms each."""

    lock: str = "redis"
    stock: int = 4
    buyers: int = 6
    happened: HistoryBuilder = field(default_factory=HistoryBuilder)

    def __post_init__(self) -> None:
        self.happened.stock = self.stock
        self.happened.of_buyers = {"lock": self.lock, "sale": SALE}
        for number in range(self.buyers):
            self.serve(number, max(0, self.stock - number))

    @property
    def keys(self) -> list[str]:
        return [f"buyer-{number}" for number in range(self.buyers)]

    def at(self, number: int, ms: float, f: str, type: str = "ok", **fields: Any) -> None:
        """A node recorded an event of a buyer, `ms` after its turn began."""
        where = WHERE[number % len(WHERE)]
        self.happened.at(20 * number + ms, f"buyer-{number}", f, type, **where, **fields)

    def serve(self, number: int, amount: int) -> None:
        """One buyer's turn, with `amount` units left: asked at 1 ms, answered at 19."""
        shop, key = self.happened, f"buyer-{number}"
        locked = EVIDENCE[self.lock].locked
        fence = 100 + number if EVIDENCE[self.lock].fenced else None
        token = {"token": f"token-{number}"}
        shop.asks(20 * number + 1, key)
        self.at(number, 2, "arrives")
        self.at(number, 3, "begins", "invoke", lock=self.lock, product=PRODUCT, sale=SALE)
        if locked:
            self.at(number, 4, "acquire", "invoke")
            name = f"{self.lock}:{PRODUCT}"
            grant: dict[str, Any] = {"fence": fence, "lock_name": name, "waited_ms": 1.0, **token}
            self.at(number, 5, "acquired", **grant)
        promises = EVIDENCE[self.lock].promises
        if EVIDENCE[self.lock].reserves:
            self.at(number, 6, "reserve", "invoke")
        if EVIDENCE[self.lock].reserves and not promises and amount:
            self.at(number, 6.5, "reserved")
        if not promises:
            self.at(number, 7, "after_read", amount=amount, sale=SALE)
        order = None
        if amount:
            order = shop.first_order + len(shop.orders)
            if promises:
                self.at(number, 10, "reserved", order=order, amount=amount, sale=SALE)
            else:
                self.at(number, 10, "before_commit", "invoke", order=order, sale=SALE)
            sold_at = f"2026-01-02T03:04:{number:02}+00:00"
            shop.orders.append(
                {"order": order, "key": key, "lock": self.lock, "fence": fence, "amount": 1}
                | {"stock_seen": amount, "buyer": key, "product": PRODUCT, "time": sold_at}
            )
            if locked:
                self.at(number, 12, "after_commit", sale=SALE)
        if locked:
            self.at(number, 13, "release", "invoke", **token)
            self.at(number, 14, "released", outcome="released", held_ms=9.0, **token)
        shop.answered(20 * number + 19, key, "sold" if amount else "sold_out", order)
        if amount:
            shop.events[-1].update({"sold_in": SALE, "fence": fence, "stock_seen": amount})
        if amount and locked:
            shop.events[-1]["released"] = "released"

    def judged(self, **more: Any) -> Judgement:
        """The judgement as demo and matrix have it."""
        known = {
            "buyer_keys": self.keys,
            "arrivals": self.buyers,
            "strategy": self.lock,
            "sale": SALE,
        }
        known |= {"product": PRODUCT, "nodes_recorded": True, "undisturbed": True, "ttl": None}
        return self.happened.judged(**{**known, **more})

    # --- what is looked up and changed ----------------------------------------------------------

    def events(self, f: str, number: int | None = None) -> list[Any]:
        """The nodes' events of this kind, of one buyer or of all."""
        return [
            event
            for event in self.happened.events
            if event["by"] == "node"
            and event["f"] == f
            and number in (None, int(event["attempt"].rpartition("-")[2]))
        ]

    def forget(self, *kinds: str) -> None:
        """Remove the nodes' events of these kinds, without kinds all."""
        self.happened.events = [
            event
            for event in self.happened.events
            if event["by"] != "node" or (kinds and event["f"] not in kinds)
        ]

    def change(self, f: str, number: int | None = None, later: float = 0, **fields: Any) -> None:
        """Set fields of the nodes' events of this kind, and let them come `later` (ms)."""
        for event in self.events(f, number):
            event.update(fields)
            event["t"] += round(later * 1e6)

    def change_answers(self, key: str = "", **fields: Any) -> None:
        """Set fields of the answers `sold`, to one buyer or to all."""
        for event in self.happened.events:
            if event["by"] == "buyer" and event["type"] == "ok" and key in ("", event["attempt"]):
                event.update(fields)  # type: ignore[typeddict-item]

    def answer(self, number: int, outcome: str, **fields: Any) -> None:
        """Change the answer to a buyer."""
        shop, key = self.happened, f"buyer-{number}"
        shop.events = [
            e for e in shop.events if (e["by"], e.get("attempt"), e["type"] == "invoke")
            != ("buyer", key, False)
        ]  # fmt: skip
        shop.answered(20 * number + 19, key, outcome, fields.pop("order", None))
        shop.events[-1].update(fields)  # type: ignore[typeddict-item]

    def asks_again(self, number: int, **said: Any) -> None:
        """A buyer asks a second time, at 200 ms, and its order is replayed."""
        key, order = f"buyer-{number}", self.happened.orders[number]["order"]
        seen = self.happened.orders[number]["stock_seen"]
        self.happened.asks(200, key)
        self.at(number, 202 - 20 * number, "arrives")
        begins = {"lock": self.lock, "product": PRODUCT, "sale": SALE}
        self.at(number, 203 - 20 * number, "begins", "invoke", **begins)
        self.happened.answered(210, key, "sold", order)
        replay = {"replayed": True, "sold_in": SALE, "stock_seen": seen, **said}
        self.happened.events[-1].update(replay)  # type: ignore[typeddict-item]


#: A plant changes a rush, and may return arguments for the judge.
Plant = Callable[[RecordedRush], Any]
#: Every plant, with a strategy under which it is planted and the rule that has to find it; an empty
#: name: no rule, but there must be no verdict.
PLANTS: list[tuple[Plant, str, str]] = []
ALL = tuple(EVIDENCE)
FENCED = tuple(lock for lock, evidence in EVIDENCE.items() if evidence.fenced)
LOCKED = tuple(lock for lock, evidence in EVIDENCE.items() if evidence.locked)
#: One for each way to know what a buyer saw.
EACH_WAY = ("redis", "row-lock", "conditional", "counter", "buckets", "skip-locked", "reserve")


def plant(*rules: str, locks: Sequence[str] = ("redis",)) -> Callable[[Plant], Plant]:
    """A violation that each of these rules has to find under each of these strategies."""

    def add(what: Plant) -> Plant:
        PLANTS.extend((what, lock, rule) for lock in locks for rule in rules)
        return what

    return add
