"""The evidence that the history of a correct sale shows, by strategy.

The load test defines this evidence itself, because a shop that is judged must not choose the rules.
A test compares the names with those of the shop's strategies.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence that the history of a correct sale shows of each order.

    locked     the stock was read and the order was committed while the node held the lock
    own_token  no two grants share a token; false if a holder may enter its own lock again
    fenced     the order carries the fence of its grant
    absolute   the purchase writes the stock that it read, less one, so each order reads one unit
               less than the order before it
    one_row    every buyer writes the product's row before its order, so orders are committed in the
               order of their numbers
    numbered   orders are committed in the order of their numbers; false if a number is drawn before
               the unit is taken
    own_unit   the stock that an order saw is the number of its unit, which no other order has
    reserves   a unit is reserved in Redis before the order is committed
    promises   the reservation promises the order, which a consumer writes later
    """

    locked: bool = False
    own_token: bool = False
    fenced: bool = False
    absolute: bool = False
    one_row: bool = True
    numbered: bool = True
    own_unit: bool = False
    reserves: bool = False
    promises: bool = False


#: Keys that may stay on a lock server after a sale: the last fence of a lock, the units that the
#: counter has reserved or promised, and keys that belong to no lock.
PERMANENT_KEYS = re.compile(
    r"(lock:\{.*\}:fence|stock:\{(\d+\}(:held)?|reserve\}:.*)|throttle:.*|page:.*|:1:.*)\Z"
)

NO_EVIDENCE = Evidence()
_LOCK = Evidence(locked=True, own_token=True, absolute=True)
_FENCED_LOCK = Evidence(locked=True, own_token=True, fenced=True, absolute=True)
_ROW = Evidence(absolute=True)

#: Strategy -> the evidence of a correct sale under it.
EVIDENCE: Mapping[str, Evidence] = {
    "none": _ROW,
    "autocommit": _ROW,
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
    "reentrant": Evidence(locked=True, absolute=True),
    "redis": _FENCED_LOCK,
    "one-file": _FENCED_LOCK,
    "fence-at-write": _FENCED_LOCK,
    "advisory": _ROW,
    "row-lock": _ROW,
    "version": _ROW,
    "serializable": _ROW,
    "rollback": NO_EVIDENCE,
    "conditional": NO_EVIDENCE,
    "counter": Evidence(reserves=True),
    "buckets": Evidence(one_row=False),
    "skip-locked": Evidence(one_row=False, own_unit=True),
    "reserve": Evidence(numbered=False, own_unit=True, reserves=True, promises=True),
}
