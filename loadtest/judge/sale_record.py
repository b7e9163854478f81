"""The record of a sale: its orders, its history, and what the run asked of the shop."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

from loadtest.judge.evidence import EVIDENCE, NO_EVIDENCE, Evidence
from loadtest.judge.history import Event
from loadtest.judge.intervals import Commit, OrderNumber, ProductHistory, Request, group_by
from loadtest.judge.outcomes import OUTCOMES
from loadtest.judge.required_fields import readable_order


@dataclass(kw_only=True, eq=False, repr=False)
class SaleRecord(ProductHistory):
    """One sale after its drain or its deadline, and what the run asked of the shop.

    The events are those of its product: at least the requests of its buyers. The key of a buyer is
    its Idempotency-Key, which is also the id of its attempt.

    initial_stock       units that the run asked for
    opening_stock       units with which the sale opened, as the shop says
    stock_left          units that the shop still shows
    orders              as GET /sales/<id>/orders lists them
    buyer_keys          keys of the buyers who were sent; empty: they are not compared
    arrivals            number of the buyers who were ready to buy; None: all
    strategy            the strategy that the buyers asked for; empty: any
    product             the product that they asked for; empty: any
    sale                number of the sale that they came for; 0: any, as in another shop
    nodes_recorded      whether the nodes recorded events: a missing event is a finding then
    undisturbed         whether nothing took a lock from its holder: two holders are a finding then
    robbed_buyers       keys of the buyers whose lock was taken; None: it may be any buyer's
    excused_buyers      keys of the buyers who were not to ask again
    ttl                 seconds that a lock survives its holder; None: no deadlock is looked for
    fault_fired         whether the fault happened; a `prove` event that failed also says that not
    orphan_lock         the key of a lock that is left without a holder; empty: there is none
    leaked_keys         keys left on the lock servers that no lock should leave there
    unsettled_promises  promised orders that are not written yet; None: the shop cannot tell
    """

    initial_stock: int
    opening_stock: int
    stock_left: int
    orders: Sequence[Mapping[str, Any]]
    buyer_keys: Sequence[str] = ()
    arrivals: int | None = None
    strategy: str = ""
    product: str = ""
    sale: int = 0
    nodes_recorded: bool = False
    undisturbed: bool = False
    robbed_buyers: frozenset[str] | None = None
    excused_buyers: frozenset[str] = frozenset()
    ttl: float | None = None
    fault_fired: bool = True
    orphan_lock: str = ""
    leaked_keys: Sequence[str] = ()
    unsettled_promises: int | None = 0

    def __post_init__(self) -> None:
        #: The orders as the shop lists them; `orders` lack the values that cannot be compared.
        self.listed_orders = self.orders
        self.orders = [readable_order(order) for order in self.orders]

    @property
    def is_own_shop(self) -> bool:
        """Return whether this project's shop held the sale: only its sales have numbers."""
        return bool(self.sale)

    @property
    def evidence(self) -> Evidence:
        """The evidence that the history of a correct sale under this strategy shows."""
        return EVIDENCE.get(self.strategy, NO_EVIDENCE)

    # --- orders ---------------------------------------------------------------------------------

    @cached_property
    def orders_by_commit_time(self) -> list[Mapping[str, Any]]:
        """The orders, sorted by their commits.

        The commits have the sequence of the numbers if every buyer writes the same row first:
        PostgreSQL lets no other buyer write that row before the commit. Numbers that are text, as
        another shop may have, come last, in the sequence of the list.
        """

        def position(order: Mapping[str, Any]) -> tuple[bool, int]:
            number = order["order"]
            return (False, number) if isinstance(number, int) else (True, 0)

        return sorted(self.orders, key=position)

    @cached_property
    def order_numbers_by_key(self) -> dict[str, OrderNumber]:
        return {order["key"]: order["order"] for order in self.orders}

    @property
    def ordered_units(self) -> int:
        """Units in all orders; one in an order that does not name its amount."""
        return sum(int(order.get("amount", 1)) for order in self.orders)

    @property
    def lost_updates(self) -> int:
        """Units ordered less units that left the stock: decrements that another write erased.

        It is negative if units left the stock without an order.
        """
        return self.ordered_units - (self.initial_stock - self.stock_left)

    @property
    def oversold(self) -> int:
        """Units promised beyond the stock.

        These are the units of all orders, plus one per buyer whose acknowledged order number is
        missing. Acknowledged orders of two kinds are not counted as missing; `lost_ack` reports
        them:

        - an order whose number the answer did not name: it cannot be looked up
        - an order that exists under another buyer's key

        A target may renumber orders, so an unmatched order cancels one missing order.
        """
        numbers_not_acknowledged_to_owner = {
            order["order"]
            for order in self.orders
            if order["order"] not in self.acknowledged_numbers_by_key.get(order["key"], ())
        }
        gone_count = sum(
            key not in self.order_numbers_by_key
            and bool(numbers - {None})
            and not numbers & numbers_not_acknowledged_to_owner
            for key, numbers in self.acknowledged_numbers_by_key.items()
        )
        if not self.is_own_shop:
            gone_count = max(0, gone_count - self._unknown_order_count())
        return max(0, self.ordered_units + gone_count - self.initial_stock)

    def _unknown_order_count(self) -> int:
        """Return the number of orders that neither a buyer's key nor an answer names."""
        acknowledged_numbers = set().union(*self.acknowledged_numbers_by_key.values())
        return sum(
            order["key"] not in self.last_requests and order["order"] not in acknowledged_numbers
            for order in self.orders
        )

    @cached_property
    def undersold(self) -> int:
        """Units that buyers with an answer could have bought, and that no order took.

        A buyer who got no answer, has no order and was not to ask again (its node was killed, say)
        proves nothing about the sale.
        """
        gave_up = self.excused_buyers - self.order_numbers_by_key.keys()
        answered_count = sum(
            request.outcome != "unknown" or key not in gave_up
            for key, request in self.last_requests.items()
        )
        return max(0, min(self.initial_stock, answered_count) - len(self.orders))

    # --- requests -------------------------------------------------------------------------------

    @cached_property
    def last_requests(self) -> dict[str, Request]:
        """The last request of each buyer, by its key."""
        return {key: requests[-1] for key, requests in self.requests_by_key.items()}

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of buyers by the outcome of their last request."""
        counts = Counter(request.outcome for request in self.last_requests.values())
        return {**dict.fromkeys(OUTCOMES, 0), **counts}

    @cached_property
    def acknowledged_numbers_by_key(self) -> dict[str, set[OrderNumber | None]]:
        """The orders that the answers to each key named."""
        numbers_by_key: dict[str, set[OrderNumber | None]] = {}
        for request in self.requests:
            if request.type == "ok":
                numbers_by_key.setdefault(request.attempt, set()).add(request.order)
        return numbers_by_key

    @cached_property
    def recovered_orders(self) -> dict[str, OrderNumber]:
        """Orders, by key, that no answer named, although a request of the buyer was left open."""
        return {
            key: number
            for key, number in self.order_numbers_by_key.items()
            if key not in self.acknowledged_numbers_by_key
            and any(request.type != "fail" for request in self.requests_by_key.get(key, ()))
        }

    @cached_property
    def never_arrived(self) -> int:
        """Buyers who were sent and never became ready to buy."""
        return 0 if self.arrivals is None else max(0, len(self.buyer_keys) - self.arrivals)

    @cached_property
    def never_asked(self) -> int:
        """Buyers who were ready and sent no request that is known."""
        silent_count = sum(key not in self.last_requests for key in self.buyer_keys)
        return max(0, silent_count - self.never_arrived)

    # --- events of the nodes --------------------------------------------------------------------

    @cached_property
    def node_events_by_key(self) -> dict[str, list[Event]]:
        """The events that the nodes recorded of each attempt, oldest first."""
        node_events = (event for event in self.events if event["by"] == "node")
        return group_by(node_events, itemgetter("attempt"))

    @cached_property
    def commits_by_order(self) -> dict[OrderNumber, Commit]:
        """The commit that a node recorded of each order for the order's own key."""
        return {
            commit.order: commit
            for commit in self.commits
            if commit.order is not None
            and self.order_numbers_by_key.get(commit.attempt) == commit.order
        }
