"""The record of a sale: its orders, its history, and the run's requests to the shop.

The judge uses these words:

    promised order      an order that the shop has accepted in its queue and has not written to the
                        database yet
    acknowledged order  an order whose buyer was answered `sold`
    grant, hold         the success of one acquisition of a lock, and the time from there to the
                        release
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

from loadtest.judge.history import Event
from loadtest.judge.intervals import Commit, OrderNumber, ProductHistory, Request, group_by
from loadtest.judge.mechanism import DEFAULT_MECHANISM, MECHANISMS, Mechanism
from loadtest.judge.outcomes import OUTCOMES
from loadtest.judge.required_fields import make_order_comparable


@dataclass(kw_only=True, eq=False, repr=False)
class SaleRecord(ProductHistory):
    """The record of one sale, made after the last buyer has finished or the deadline has passed.

    The field `events` has the events of the sale's product. The buyers' requests are always among
    them. Events of nodes and faults are there only if they were recorded. The key of a buyer is the
    Idempotency-Key of all its requests, and also the id of the buyer's attempt.

    initial_stock       the number of units that the run put up for sale
    opening_stock       the stock that the shop showed just after the sale was opened
    stock_left          the stock that the shop shows at the end
    orders              the orders that GET /sales/<id>/orders lists, without values that cannot be
                    compared
    buyer_keys          keys of the buyers of the run; if empty, keys are not compared
    arrivals            number of the buyers who were ready to buy; None if all were
    strategy            the strategy in the buyers' requests; if empty, it is not compared
    product             the product in the buyers' requests; if empty, it is not compared
    sale                number of the sale; 0 in a third-party shop, where it is not compared
    nodes_recorded      whether the nodes recorded events; then a missing event is a finding
    undisturbed         True if no fault was injected that can have taken a lock from its holder;
                        then a sale in which two buyers held the lock at the same time is not exact
    buyers_hit_by_fault
                        keys of the buyers from whom a fault may have taken the lock; None if it may
                        have been any buyer
    buyers_without_retry
                        keys of the buyers who send one request only, even if it gets no answer
    ttl                 seconds after which a lock expires if its holder does not renew it; if None,
                        the sale is not checked for a deadlock
    fault_fired         False if the fault did not happen. The judge also looks for an event that
                        says so: phase `prove`, type `fail`
    orphan_lock         the key of a lock that is left without a holder; empty if there is none
    leaked_keys         keys left on the lock servers, except those that may stay (PERMANENT_KEYS)
    unsettled_promises  number of orders that are accepted in the queue but not yet in the database;
                        None if the shop does not know it
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
    buyers_hit_by_fault: frozenset[str] | None = None
    buyers_without_retry: frozenset[str] = frozenset()
    ttl: float | None = None
    fault_fired: bool = True
    orphan_lock: str = ""
    leaked_keys: Sequence[str] = ()
    unsettled_promises: int | None = 0

    def __post_init__(self) -> None:
        #: The orders as the shop lists them. An entry that is not a JSON object is replaced by an
        #: empty order.
        self.listed_orders: list[Mapping[str, Any]] = [
            order if isinstance(order, Mapping) else {} for order in self.orders
        ]
        # The rules compare these orders, so values of a wrong type are removed from them.
        self.orders = [
            make_order_comparable(order) for order in self.orders if isinstance(order, Mapping)
        ]

    @property
    def is_own_shop(self) -> bool:
        """Whether the sale took place in this project's shop. Other shops do not number sales."""
        return bool(self.sale)

    @property
    def mechanism(self) -> Mechanism:
        """How the sale's strategy guards the stock; DEFAULT_MECHANISM if that is not known."""
        return MECHANISMS.get(self.strategy, DEFAULT_MECHANISM)

    # --- orders ---------------------------------------------------------------------------------

    @cached_property
    def orders_sorted_by_number(self) -> list[Mapping[str, Any]]:
        """The orders, sorted by their numbers.

        This is also the sequence of their commits if Mechanism.writes_product_row_first is true. In
        that case every buyer writes the product's row before it inserts its order, and no other
        buyer can write that row until the commit.

        Orders whose number is text, as in a third-party shop, come last and keep their sequence.
        """
        numbered_orders = [order for order in self.orders if isinstance(order["order"], int)]
        other_orders = [order for order in self.orders if not isinstance(order["order"], int)]
        return sorted(numbered_orders, key=itemgetter("order")) + other_orders

    @cached_property
    def order_numbers_by_key(self) -> dict[str, OrderNumber]:
        """Key of a buyer -> the number of the buyer's order.

        If a buyer has several orders, this is the number of the last one in the list.
        """
        return {order["key"]: order["order"] for order in self.orders}

    @property
    def ordered_units(self) -> int:
        """Units in all orders. An order without an amount counts as one unit."""
        return sum(int(order.get("amount", 1)) for order in self.orders)

    @property
    def lost_updates(self) -> int:
        """Units that were ordered, minus units that left the stock.

        This is the number of decrements that another write erased. It is negative if units left
        the stock without an order.
        """
        return self.ordered_units - (self.initial_stock - self.stock_left)

    @property
    def oversold(self) -> int:
        """Units sold beyond the stock.

        The sold units are the units of all orders, and one unit for each missing order. An order is
        missing if its buyer was answered `sold` with the order's number, and the buyer has no order
        now. There is one exception: if the number now belongs to an order of another buyer, the
        order does not count as missing, and only the rule `lost_ack` reports it.

        A third-party shop may give an order a new number. So if an order there matches no buyer and
        no answer, it may be one of the missing orders, and is subtracted from their number.
        """
        # The numbers of the orders that now belong to a buyer who was not answered with the number.
        numbers_unknown_to_owner = {
            order["order"]
            for order in self.orders
            if order["order"] not in self.acknowledged_numbers_by_key.get(order["key"], ())
        }
        missing_count = 0
        for key, numbers in self.acknowledged_numbers_by_key.items():
            has_order = key in self.order_numbers_by_key
            was_answered_with_number = numbers != {None}
            belongs_to_another_buyer = bool(numbers & numbers_unknown_to_owner)
            if was_answered_with_number and not has_order and not belongs_to_another_buyer:
                missing_count += 1
        if not self.is_own_shop:
            missing_count = max(0, missing_count - self._count_unknown_orders())
        return max(0, self.ordered_units + missing_count - self.initial_stock)

    def _count_unknown_orders(self) -> int:
        """Return the number of orders that no request and no answer of the run shows.

        Such an order has a key that no buyer sent, and a number that is in no answer.
        """
        acknowledged_numbers = set().union(*self.acknowledged_numbers_by_key.values())
        return sum(
            order["key"] not in self.last_requests and order["order"] not in acknowledged_numbers
            for order in self.orders
        )

    @cached_property
    def undersold(self) -> int:
        """Units that were not sold, although there were buyers for them.

        Every buyer who sent a request counts, even one who got no answer. The exception is a buyer
        who sent one request only (buyers_without_retry), and has neither an answer nor an order:
        its node may have been killed, and it did not try another node.
        """
        buyer_count = 0
        for key, request in self.last_requests.items():
            is_unserved = request.outcome == "unknown" and key not in self.order_numbers_by_key
            if not (is_unserved and key in self.buyers_without_retry):
                buyer_count += 1
        return max(0, min(self.initial_stock, buyer_count) - len(self.orders))

    # --- requests -------------------------------------------------------------------------------

    @cached_property
    def last_requests(self) -> dict[str, Request]:
        """Key of a buyer -> the buyer's last request."""
        return {key: requests[-1] for key, requests in self.requests_by_key.items()}

    @property
    def outcomes(self) -> dict[str, int]:
        """Outcome -> number of buyers whose last request had this outcome, for all of OUTCOMES."""
        counts = Counter(request.outcome for request in self.last_requests.values())
        return {**dict.fromkeys(OUTCOMES, 0), **counts}

    @cached_property
    def acknowledged_numbers_by_key(self) -> dict[str, set[OrderNumber | None]]:
        """Key of a buyer -> the order numbers in the buyer's answers `sold`.

        None stands for an answer without a number.
        """
        numbers_by_key: dict[str, set[OrderNumber | None]] = {}
        for request in self.requests:
            if request.type == "ok":
                numbers_by_key.setdefault(request.attempt, set()).add(request.order)
        return numbers_by_key

    @cached_property
    def recovered_orders(self) -> dict[str, OrderNumber]:
        """Key of a buyer -> the number of its order, for buyers who do not know that they bought.

        Such a buyer was never answered `sold`, but one of its requests may have sold the unit. The
        name follows Jepsen, which calls a write of unknown outcome recovered if a read finds it.
        """
        # A request of the type `fail` certainly sold nothing. One of the type `info` may have.
        return {
            key: number
            for key, number in self.order_numbers_by_key.items()
            if key not in self.acknowledged_numbers_by_key
            and any(request.type != "fail" for request in self.requests_by_key.get(key, ()))
        }

    @cached_property
    def never_arrived(self) -> int:
        """Number of the run's buyers who never became ready to buy.

        In a rush, a buyer is ready when it waits for the moment at which all buyers may start.
        """
        return 0 if self.arrivals is None else max(0, len(self.buyer_keys) - self.arrivals)

    @cached_property
    def never_asked(self) -> int:
        """Number of buyers who were ready to buy, but without a recorded request."""
        buyers_without_request = sum(key not in self.last_requests for key in self.buyer_keys)
        return max(0, buyers_without_request - self.never_arrived)

    # --- events of the nodes --------------------------------------------------------------------

    @cached_property
    def node_events_by_key(self) -> dict[str, list[Event]]:
        """Key of an attempt -> the events of this attempt that nodes recorded, oldest first."""
        node_events = (event for event in self.events if event["by"] == "node")
        return group_by(node_events, itemgetter("attempt"))

    @cached_property
    def commits_by_order(self) -> dict[OrderNumber, Commit]:
        """Order number -> the commit that a node recorded for that order and its buyer."""
        return {
            commit.order: commit
            for commit in self.commits
            if commit.order is not None
            and self.order_numbers_by_key.get(commit.attempt) == commit.order
        }
