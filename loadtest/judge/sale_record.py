"""A sale as the judge sees it: its orders, its history, and what was asked of the shop."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

from loadtest.judge.evidence import EVIDENCE, NO_EVIDENCE, Evidence
from loadtest.judge.history import Event
from loadtest.judge.intervals import Commit, ProductHistory, Request, group_by
from loadtest.judge.required_fields import readable_order

#: Every outcome that POST /buy answers with, or a buyer concludes from having no answer.
OUTCOMES = (
    *("sold", "sold_out", "closed", "busy", "lost"),
    *("unavailable", "throttled", "full", "error", "unknown"),
)
#: The outcomes after which a buyer does not ask again.
FINAL = frozenset({"sold", "sold_out"})


@dataclass(kw_only=True, eq=False, repr=False)
class Record(ProductHistory):
    """One sale after its drain, or after its deadline, and what the run asked of the shop, which
    the judge compares it with. Its events are those of its product: at least the requests of its
    buyers."""

    initial_stock: int  # units that the sale was to open with, whatever the shop says
    opened: int  # units that it opened with, as the shop has it
    stock_left: int  # units that the shop still shows
    orders: Sequence[Mapping[str, Any]]  # as GET /sales/<id>/orders has them
    buyers: Sequence[str] = ()  # keys of all who were sent; empty: those of whom anything is known
    arrived: int | None = None  # how many of them were ready to buy, None: all
    lock: str = ""  # the strategy that each asked for; empty: any
    product: str = ""  # what they asked for; empty: anything
    sale: int = 0  # number of the sale that they came for; 0: any
    recorded: bool = False  # the nodes recorded: what they left out is a finding
    undisturbed: bool = False  # nothing took a lock from its holder: two holders are a finding
    robbed: frozenset[str] | None = None  # keys of those whose lock was taken; None: anybody's
    excused: frozenset[str] = frozenset()  # keys of those who were not to ask again
    ttl: float | None = None  # seconds that a lock survives its holder; None: no deadlock is found
    fired: bool = True  # the fault happened; a failed `prove` event also says no
    orphan_lock: str = ""  # the key of a lock that is left after everybody has gone, if any
    leaked: Sequence[str] = ()  # keys left on the lock servers that no lock leaves there
    unsettled: int | None = 0  # promises whose order is not written yet; None: nobody knows

    def __post_init__(self) -> None:
        #: The orders as the shop lists them; `orders` has no values that cannot be compared.
        self.listed_orders = self.orders
        self.orders = [readable_order(order) for order in self.orders]

    @property
    def is_own_shop(self) -> bool:
        """Return whether this project's shop held the sale: only its sales have numbers."""
        return bool(self.sale)

    @property
    def evidence(self) -> Evidence:
        """What the history of a correct sale under this sale's strategy shows."""
        return EVIDENCE.get(self.lock, NO_EVIDENCE)

    @cached_property
    def committed(self) -> list[Mapping[str, Any]]:
        """The orders in the order of their commits, which is that of their numbers where everybody
        writes one row first: PostgreSQL lets nobody else write that row before the commit. Numbers
        that are text, as another shop may have them, come last, as they were listed."""

        def place(order: Mapping[str, Any]) -> tuple[bool, int]:
            number = order["order"]
            return (False, number) if isinstance(number, int) else (True, 0)

        return sorted(self.orders, key=place)

    @cached_property
    def number_of(self) -> dict[str, int | str]:
        """The order of each key that has one."""
        return {order["key"]: order["order"] for order in self.orders}

    @property
    def units(self) -> int:
        """Units in all orders; one in each, where the shop does not say."""
        return sum(int(order.get("amount", 1)) for order in self.orders)

    @property
    def lost_updates(self) -> int:
        """Units ordered less units that left the shelf; not 0 where a decrement was erased."""
        return self.units - (self.initial_stock - self.stock_left)

    @property
    def oversold(self) -> int:
        """Units that were promised beyond the stock: those of all orders, and one for each buyer
        whose order is gone, by the number that the answer named.

        An answer that names no order promises nothing that could be looked up, and an order that
        stands under another key is there: `lost_ack` has both. In another shop an order of which
        neither the buyer nor the number is known may be that buyer's, under another number.
        """
        strays = {
            order["order"]
            for order in self.orders
            if order["order"] not in self.acknowledged.get(order["key"], ())
        }
        gone = [
            key
            for key, named in self.acknowledged.items()
            if key not in self.number_of and named - {None} and not named & strays
        ]
        named_orders = set().union(*self.acknowledged.values())
        unknown_orders = [
            order
            for order in self.orders
            if order["key"] not in self.last and order["order"] not in named_orders
        ]
        explained = 0 if self.is_own_shop else len(unknown_orders)
        return max(0, self.units + max(0, len(gone) - explained) - self.initial_stock)

    @cached_property
    def undersold(self) -> int:
        """Units that buyers who were answered could have bought, and nobody did.

        Somebody who got no answer, has no order and was not to ask again (its node was killed, say)
        proves nothing about the sale.
        """
        gave_up = self.excused - self.number_of.keys()
        answered = [k for k, r in self.last.items() if r.outcome != "unknown" or k not in gave_up]
        return max(0, min(self.initial_stock, len(answered)) - len(self.orders))

    @property
    def outcomes(self) -> dict[str, int]:
        """How many buyers got each outcome as their last answer."""
        found = Counter(request.outcome for request in self.last.values())
        return {**dict.fromkeys(OUTCOMES, 0), **found}

    @cached_property
    def of_nodes(self) -> dict[str, list[Event]]:
        """What the nodes recorded of each attempt, oldest first."""
        of_nodes = (event for event in self.events if event["by"] == "node")
        return group_by(of_nodes, itemgetter("attempt"))

    @cached_property
    def last(self) -> dict[str, Request]:
        """The last request of everybody who asked."""
        return {key: requests[-1] for key, requests in self.requests_by_key.items()}

    @cached_property
    def commit_of(self) -> dict[int | str, Commit]:
        """By the number of each order: the commit that a node recorded of it, for its own key."""
        return {
            commit.order: commit
            for commit in self.commits
            if commit.order is not None and self.number_of.get(commit.attempt) == commit.order
        }

    @cached_property
    def acknowledged(self) -> dict[str, set[int | str | None]]:
        """The orders that any answer to each key named."""
        found: dict[str, set[int | str | None]] = {}
        for request in self.requests:
            if request.type == "ok":
                found.setdefault(request.attempt, set()).add(request.order)
        return found

    @cached_property
    def recovered(self) -> dict[str, int | str]:
        """By key: orders that no answer named, of buyers for whom an answer had left it open."""
        return {
            key: number
            for key, number in self.number_of.items()
            if key not in self.acknowledged
            and any(request.type != "fail" for request in self.requests_by_key.get(key, ()))
        }

    @cached_property
    def never_arrived(self) -> int:
        """Buyers who were sent and never became ready to buy."""
        sent = len(self.buyers)
        return 0 if self.arrived is None else max(0, sent - self.arrived)

    @cached_property
    def never_asked(self) -> int:
        """Buyers who were ready and of whom no request is known."""
        silent = sum(key not in self.last for key in self.buyers)
        return max(0, silent - self.never_arrived)
