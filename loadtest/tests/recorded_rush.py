"""A correct rush with all events that nodes and buyers record, to which tests add violations.

In a rush many buyers buy the same product at once. In this one, a buyer is served in its own turn,
so that the correct events and their times are known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.judge.mechanism import MECHANISMS
from loadtest.judge.verdict import Judgement
from loadtest.tests.history_builder import PRODUCT, HistoryBuilder

#: The number of the sale.
SALE = 7
#: The time from a buyer's turn to the next buyer's turn. Each purchase begins and ends in its turn.
TURN_MS = 20
#: The time of an answer in the turn of its buyer.
ANSWER_MS = 19
#: The fence of buyer 0. The fence of buyer N is N higher.
FIRST_FENCE = 100
#: The threads that serve the buyers in turn. Node A has two processes.
SERVING_THREADS: tuple[dict[str, Any], ...] = (
    {"node": "A", "pid": 12, "thread": 1201},
    {"node": "B", "pid": 22, "thread": 2201},
    {"node": "A", "pid": 13, "thread": 1301},
)


@dataclass
class RecordedRush:
    """A rush in which buyers are served one after another, and all units are sold.

    So its sale is exact. A test may then change events and orders.

    In each method `number` is the number of a buyer, from 0, and `kind` the field `f` of an event.
    The key of buyer N is `buyer-N`.

    lock     the strategy
    stock    the number of units
    buyers   the number of buyers, each of whom buys one unit if there is one
    history  the events and the orders
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
        """The idempotency keys of all buyers."""
        return [f"buyer-{number}" for number in range(self.buyers)]

    def record(self, number: int, ms: float, kind: str, type: str = "ok", **fields: Any) -> None:
        """Record an event of the node that serves a buyer.

        ms  the time of the event, counted from the beginning of the buyer's turn
        """
        origin = SERVING_THREADS[number % len(SERVING_THREADS)]
        event_ms = TURN_MS * number + ms
        self.history.record(event_ms, f"buyer-{number}", kind, type, **origin, **fields)

    def record_begin(self, number: int, ms: float) -> None:
        """Record that a node began a buyer's purchase under the strategy of the rush."""
        self.record(number, ms, "begins", "invoke", lock=self.lock, product=PRODUCT, sale=SALE)

    def serve(self, number: int, amount: int) -> None:
        """Record all events of one buyer's purchase.

        amount  the stock that is left before the purchase; if it is 0, the answer is `sold_out`
        """
        key = f"buyer-{number}"
        fence = FIRST_FENCE + number if self.mechanism.fenced else None
        token = f"token-{number}"
        self.history.request(TURN_MS * number + 1, key)
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
        self.history.answer(TURN_MS * number + ANSWER_MS, key, outcome, order, **sold_fields)

    def _record_stock_read(self, number: int, amount: int) -> None:
        """Record how a node reserves a unit or reads the stock, as its strategy does.

        Some strategies reserve a unit in Redis, and then read the stock. A strategy that promises
        an order answers after the reservation alone, and does not read the stock: _record_order()
        records the end of that reservation.
        """
        if self.mechanism.reserves:
            self.record(number, 6, "reserve", "invoke")
        if self.mechanism.promises:
            return
        if self.mechanism.reserves and amount:
            self.record(number, 6.5, "reserved")
        self.record(number, 7, "after_read", amount=amount, sale=SALE)

    def _record_order(self, number: int, amount: int, fence: int | None) -> int:
        """Record a buyer's order of one unit. Return the order's number.

        amount  the stock that the purchase saw
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
        """Judge the rush in the same way as the commands `demo` and `matrix` do.

        fields  arguments of Judgement() that replace the usual ones
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

    # --- changes of recorded events -------------------------------------------------------------

    def node_events(self, kind: str, number: int | None = None) -> list[Any]:
        """Return the nodes' events of this kind.

        number  the buyer whose events are returned; None: those of all buyers
        """
        return [
            event
            for event in self.history.events
            if event["by"] == "node"
            and event["f"] == kind
            and (number is None or event["attempt"] == f"buyer-{number}")
        ]

    def remove_node_events(self, *kinds: str) -> None:
        """Remove the nodes' events of these kinds. Without kinds, remove all events of nodes."""
        self.history.events = [
            event
            for event in self.history.events
            if event["by"] != "node" or (kinds and event["f"] not in kinds)
        ]

    def change_node_events(
        self, kind: str, number: int | None = None, shift_ms: float = 0, **fields: Any
    ) -> None:
        """Set fields of the nodes' events of this kind, and shift their times.

        number    the buyer whose events are changed; None: those of all buyers
        shift_ms  the shift; a positive number makes the events later
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
        """Set fields of the answers `sold`.

        key  the buyer whose answer is changed; empty: those of all buyers
        """
        events: list[Any] = self.history.events
        for event in events:
            if event["by"] == "buyer" and event["type"] == "ok" and key in ("", event["attempt"]):
                event.update(fields)

    def change_answer(self, number: int, outcome: str, **fields: Any) -> None:
        """Replace the answer to a buyer with an answer that has this outcome.

        fields  further fields of the new answer's event
        """
        answers = [event for event in self.buyer_events(number) if event["type"] != "invoke"]
        self.history.events = [event for event in self.history.events if event not in answers]
        self.history.answer(TURN_MS * number + ANSWER_MS, f"buyer-{number}", outcome, **fields)

    def repeat_request(self, number: int, **fields: Any) -> None:
        """Let a buyer repeat its request at 200 ms. The answer has the buyer's existing order.

        fields  fields of the answer's event that replace the correct ones
        """
        key = f"buyer-{number}"
        order = self.history.orders[number]
        replay = {
            "order": order["order"],
            "replayed": True,
            "sold_in": SALE,
            "stock_seen": order["stock_seen"],
        }
        turn_began_ms = TURN_MS * number  # record() counts its times from here
        self.history.request(200, key)
        self.record(number, 202 - turn_began_ms, "arrives")
        self.record_begin(number, 203 - turn_began_ms)
        self.history.answer(210, key, "sold", **{**replay, **fields})


#: A plant is a function that adds a violation to a rush, which a rule of the judge must find. If a
#: violation is in the arguments of Judgement() and not in the history, it returns these arguments.
Plant = Callable[[RecordedRush], Any]
#: The argument of @violates_rules if no rule need find the violation. The verdict must then be
#: `unknown`, or `oversold` if there are too many orders.
NO_RULE = ""
#: Each plant with a strategy, and the rule that must find the violation under this strategy.
PLANTS: list[tuple[Plant, str, str]] = []
ALL_STRATEGIES = tuple(MECHANISMS)
STRATEGIES_WITH_FENCE = tuple(lock for lock, mechanism in MECHANISMS.items() if mechanism.fenced)
STRATEGIES_WITH_LOCK = tuple(lock for lock, mechanism in MECHANISMS.items() if mechanism.locked)
#: The judge learns in different ways which stock a purchase saw. Each of these strategies is an
#: example of one way.
SAMPLE_STRATEGIES = (
    "redis",
    "row-lock",
    "conditional",
    "counter",
    "buckets",
    "skip-locked",
    "reserve",
)


def violates_rules(*rules: str, locks: Sequence[str] = ("redis",)) -> Callable[[Plant], Plant]:
    """Return a decorator that adds a plant, a function that violates rules of the judge, to PLANTS.

    rules  the rules, each of which must find the violation
    locks  the strategies under which the rules must find it
    """

    def register(plant: Plant) -> Plant:
        PLANTS.extend((plant, lock, rule) for lock in locks for rule in rules)
        return plant

    return register
