"""A whole rush as nodes and buyers record it, as a base for planted violations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.mechanism import MECHANISMS
from loadtest.judge.verdict import Judgement
from loadtest.tests.history_builder import PRODUCT, HistoryBuilder

#: The number of the sale.
SALE = 7
#: The time that each buyer has to itself.
TURN_MS = 20
#: The threads that serve the buyers in turn. Node A has two processes.
SERVING_THREADS: tuple[dict[str, Any], ...] = (
    {"node": "A", "pid": 12, "thread": 1201},
    {"node": "B", "pid": 22, "thread": 2201},
    {"node": "A", "pid": 13, "thread": 1301},
)


@dataclass
class RecordedRush:
    """A rush whose sale is exact: its `buyers` ask for `stock` units, and are served one by one.

    In each method `number` is the number of a buyer, from 0, and `kind` the field `f` of an event.

    lock  the strategy
    """

    lock: str = "redis"
    stock: int = 4
    buyers: int = 6
    history: HistoryBuilder = field(default_factory=HistoryBuilder)

    def __post_init__(self) -> None:
        """Record the purchases of all buyers."""
        self.mechanism = MECHANISMS[self.lock]
        self.history.stock = self.stock
        self.history.buyer_fields = {"lock": self.lock, "sale": SALE}
        for number in range(self.buyers):
            units_left = max(0, self.stock - number)
            self.serve(number, units_left)

    @property
    def keys(self) -> list[str]:
        """The keys of all buyers."""
        return [f"buyer-{number}" for number in range(self.buyers)]

    def record(self, number: int, ms: float, kind: str, type: str = "ok", **fields: Any) -> None:
        """Record an event of the node that serves a buyer, `ms` after the buyer's turn began."""
        origin = SERVING_THREADS[number % len(SERVING_THREADS)]
        event_ms = TURN_MS * number + ms
        self.history.record(event_ms, f"buyer-{number}", kind, type, **origin, **fields)

    def record_begin(self, number: int, ms: float) -> None:
        """Record that a node began the purchase of a buyer."""
        self.record(number, ms, "begins", "invoke", lock=self.lock, product=PRODUCT, sale=SALE)

    def serve(self, number: int, amount: int) -> None:
        """Record all events of one buyer's purchase while `amount` units are left."""
        key = f"buyer-{number}"
        fence = 100 + number if self.mechanism.fenced else None
        token = f"token-{number}"
        self.history.ask(TURN_MS * number + 1, key)
        self.record(number, 2, "arrives")
        self.record_begin(number, 3)
        if self.mechanism.locked:
            self.record(number, 4, "acquire", "invoke")
            grant: dict[str, Any] = {"token": token, "fence": fence, "waited_ms": 1.0}
            self.record(number, 5, "acquired", lock_name=f"{self.lock}:{PRODUCT}", **grant)
        self._record_stock_read(number, amount)
        order = self._record_order(number, amount, fence) if amount else None
        if self.mechanism.locked:
            self.record(number, 13, "release", "invoke", token=token)
            release: dict[str, Any] = {"outcome": "released", "held_ms": 9.0}
            self.record(number, 14, "released", token=token, **release)
        sold_fields: dict[str, Any] = {}
        if amount:
            sold_fields = {"sold_in": SALE, "fence": fence, "stock_seen": amount}
        if amount and self.mechanism.locked:
            sold_fields["released"] = "released"
        outcome = "sold" if amount else "sold_out"
        self.history.answer(TURN_MS * number + 19, key, outcome, order, **sold_fields)

    def _record_stock_read(self, number: int, amount: int) -> None:
        """Record that a node reserves a unit, if its strategy reserves units, and reads the stock.

        A strategy that only promises an order does not read the stock. _record_order() records its
        reservation.
        """
        if self.mechanism.reserves:
            self.record(number, 6, "reserve", "invoke")
        if self.mechanism.promises:
            return
        if self.mechanism.reserves and amount:
            self.record(number, 6.5, "reserved")
        self.record(number, 7, "after_read", amount=amount, sale=SALE)

    def _record_order(self, number: int, amount: int, fence: int | None) -> int:
        """Record the order of a buyer who saw `amount` units left. Return the order's number.

        The order itself is for one unit.
        """
        order = self.history.first_order + len(self.history.orders)
        if self.mechanism.promises:
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
        if self.mechanism.locked:  # nodes record this event under a lock only
            self.record(number, 12, "after_commit", sale=SALE)
        return order

    def judge(self, **fields: Any) -> Judgement:
        """Judge the rush as the commands demo and matrix do.

        fields  fields of the judgement that replace the usual ones
        """
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

    def node_events(self, kind: str, number: int | None = None) -> list[Any]:
        """Return the nodes' events of this kind: those of one buyer or, without `number`, all."""
        return [
            event
            for event in self.history.events
            if event["by"] == "node"
            and event["f"] == kind
            and (number is None or event["attempt"] == f"buyer-{number}")
        ]

    def remove_node_events(self, *kinds: str) -> None:
        """Remove the nodes' events of these kinds. If no kind is given, remove all of them."""
        self.history.events = [
            event
            for event in self.history.events
            if event["by"] != "node" or (kinds and event["f"] not in kinds)
        ]

    def change_node_events(
        self, kind: str, number: int | None = None, shift_ms: float = 0, **fields: Any
    ) -> None:
        """Set fields of the nodes' events of this kind, and shift their times by `shift_ms`.

        number  the buyer whose events are changed; None: those of all buyers
        """
        for event in self.node_events(kind, number):
            event.update(fields)
            event["t"] += round(shift_ms * 1e6)

    def buyer_events(self, number: int) -> list[Any]:
        """Return the requests of a buyer and their answers."""
        return [
            event
            for event in self.history.events
            if event["by"] == "buyer" and event["attempt"] == f"buyer-{number}"
        ]

    def change_sold_answers(self, key: str = "", **fields: Any) -> None:
        """Set fields of the answers `sold`. Without a key, the answers to all buyers change."""
        events: list[Any] = self.history.events
        for event in events:
            if event["by"] == "buyer" and event["type"] == "ok" and key in ("", event["attempt"]):
                event.update(fields)

    def change_answer(self, number: int, outcome: str, **fields: Any) -> None:
        """Replace the answer to a buyer by an answer with this outcome.

        fields  further fields of the new answer's event
        """
        answers = [event for event in self.buyer_events(number) if event["type"] != "invoke"]
        self.history.events = [event for event in self.history.events if event not in answers]
        self.history.answer(TURN_MS * number + 19, f"buyer-{number}", outcome, **fields)

    def ask_again(self, number: int, **fields: Any) -> None:
        """Let a buyer repeat its request at 200 ms. The answer names the order that it already has.

        fields  fields of the answer's event that replace the right ones
        """
        key = f"buyer-{number}"
        order = self.history.orders[number]
        replay = {
            "order": order["order"],
            "replayed": True,
            "sold_in": SALE,
            "stock_seen": order["stock_seen"],
        }
        turn_began_ms = TURN_MS * number  # record() counts the time from here
        self.history.ask(200, key)
        self.record(number, 202 - turn_began_ms, "arrives")
        self.record_begin(number, 203 - turn_began_ms)
        self.history.answer(210, key, "sold", **{**replay, **fields})


#: A rule for violations that no rule has to find.
NO_RULE = ""
#: A plant adds a violation to a rush, and may return fields of the judgement.
Plant = Callable[[RecordedRush], Any]
#: Every plant, with a strategy and the rule that finds it under that strategy. With
#: NO_RULE, the verdict must be `unknown`, or `oversold` if there are too many orders.
PLANTS: list[tuple[Plant, str, str]] = []
ALL_STRATEGIES = tuple(MECHANISMS)
STRATEGIES_WITH_FENCE = tuple(lock for lock, mechanism in MECHANISMS.items() if mechanism.fenced)
STRATEGIES_WITH_LOCK = tuple(lock for lock, mechanism in MECHANISMS.items() if mechanism.locked)
#: One strategy for each way in which the judge knows the stock that a buyer saw.
SAMPLE_STRATEGIES = (
    "redis",
    "row-lock",
    "conditional",
    "counter",
    "buckets",
    "skip-locked",
    "reserve",
)


def violates(*rules: str, locks: Sequence[str] = ("redis",)) -> Callable[[Plant], Plant]:
    """Return a decorator for functions that add a violation to a rush. It adds them to PLANTS.

    rules  the judge's rules, each of which has to find the violation
    locks  the strategies under which the judge has to find it
    """

    def register(change_rush: Plant) -> Plant:
        PLANTS.extend((change_rush, lock, rule) for lock in locks for rule in rules)
        return change_rush

    return register
