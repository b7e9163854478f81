"""The mechanism of each strategy, as the history of a correct sale shows it.

The load test defines the mechanisms itself, because a shop that is judged must not choose the
rules. A test compares the names with those of the shop's strategies.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The properties of a strategy that the history of a correct sale shows for each order.

    A grant is the success of one acquisition of a lock.

    locked      the stock is read and the order is committed while the node holds the lock
    has_unique_tokens
                no two grants have the same token; False if the lock is reentrant
    fenced      each order has the fence of the grant under which it was sold
    writes_absolute_stock
                the purchase computes the new stock from the stock that it read, and not in SQL by
                `amount = amount - 1`; so each order must read one unit less than the previous order
    writes_product_row_first
                every buyer writes the product's row before its order, so orders are committed in
                the order of their numbers
    commits_in_number_order
                an order gets its number after the stock is read; so if order A is committed before
                the stock is read for order B, A has the smaller number
    has_unit_numbers
                the stock that an order saw is the number of its unit, and no other order has it
    reserves    a unit is reserved in Redis before the order is committed
    promises    the buyer is answered `sold` after the reservation; the order is then only promised,
                and a consumer writes it to the database later
    """

    locked: bool = False
    has_unique_tokens: bool = False
    fenced: bool = False
    writes_absolute_stock: bool = False
    writes_product_row_first: bool = True
    commits_in_number_order: bool = True
    has_unit_numbers: bool = False
    reserves: bool = False
    promises: bool = False


#: Keys that may stay on a lock server after a sale.
PERMANENT_KEYS = re.compile(
    r"""(
        lock:\{.*\}:fence         # the last fence of a lock
        | stock:\{\d+\}(:held)?   # the strategy `counter`: free units, and holders of reserved ones
        | stock:\{reserve\}:.*    # the strategy `reserve`: its free units and promised orders
        | throttle:.*             # the rate limit
        | page:.*                 # the page of the demo
        | :1:.*                   # Django's cache
    )\Z""",
    re.VERBOSE,
)

#: The mechanism of strategies that write `amount = amount - 1`. Third-party shops are judged as if
#: they used it.
DEFAULT_MECHANISM = Mechanism()
_LOCK = Mechanism(locked=True, has_unique_tokens=True, writes_absolute_stock=True)
_FENCED_LOCK = Mechanism(
    locked=True, has_unique_tokens=True, fenced=True, writes_absolute_stock=True
)
#: The mechanism of strategies without a lock, or with a lock in the database. Nodes do not record
#: the locks of a database.
_NO_HOLD = Mechanism(writes_absolute_stock=True)

#: Strategy -> its mechanism.
MECHANISMS: Mapping[str, Mechanism] = {
    "none": _NO_HOLD,
    "autocommit": _NO_HOLD,
    "process": _LOCK,
    "setnx": _LOCK,
    "setnx-expire": _LOCK,
    "setnx-expire-repair": _LOCK,
    "setnx-expire-lua": _LOCK,
    "setnx-timestamp": _LOCK,
    "setnx-timestamp-del": _LOCK,
    "setpx-del": _LOCK,
    "token-get-del": _LOCK,
    "token": _LOCK,
    "token-watchdog": _LOCK,
    "redlock": _LOCK,
    "zookeeper": _LOCK,
    "redis-in-transaction": _LOCK,
    "lock-then-read": _LOCK,
    "lock-then-claim": _FENCED_LOCK,
    "reentrant": Mechanism(locked=True, writes_absolute_stock=True),
    "redis": _FENCED_LOCK,
    "one-file": _FENCED_LOCK,
    "fence-at-write": _FENCED_LOCK,
    "advisory": _NO_HOLD,
    "row-lock": _NO_HOLD,
    "version": _NO_HOLD,
    "serializable": _NO_HOLD,
    "rollback": DEFAULT_MECHANISM,
    "conditional": DEFAULT_MECHANISM,
    "counter": Mechanism(reserves=True),
    "buckets": Mechanism(writes_product_row_first=False),
    "skip-locked": Mechanism(writes_product_row_first=False, has_unit_numbers=True),
    "reserve": Mechanism(
        commits_in_number_order=False, has_unit_numbers=True, reserves=True, promises=True
    ),
}
