"""The evidence that the history of a correct sale shows, by strategy.

These are the load test's own expectations, not the shop's statements: a shop that is judged does
not choose the rules. A test compares the names with those of the shop's strategies.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence that the history of a correct sale shows of each order.

    locked     its stock was read, and it was committed, inside a hold of the lock
    own_token  no two grants share a token; not so if a holder may enter its own lock again
    fenced     it carries the fence of its grant
    absolute   the stock was written as it was read, less one: so each order reads one unit less
               than the order before it
    one_row    every buyer writes the product's row before its order: so orders are committed in the
               order of their numbers
    numbered   orders are committed in the order of their numbers; not so if a number is drawn
               before the unit is taken
    own_unit   the stock that an order saw is the number of its unit, which no other order has
    reserves   a unit is reserved in Redis before the order is committed
    promises   that reservation is the order, which a consumer writes later
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


#: Keys that may stay on a lock server after a sale: the last fence of a name, the units that the
#: counter has reserved or promised, and keys that belong to no lock.
PERMANENT_KEYS = re.compile(
    r"(lock:\{.*\}:fence|stock:\{(\d+\}(:held)?|reserve\}:.*)|throttle:.*|page:.*|:1:.*)\Z"
)

NO_EVIDENCE = Evidence()
_LOCK = Evidence(locked=True, own_token=True, absolute=True)
_FENCED_LOCK = Evidence(locked=True, own_token=True, fenced=True, absolute=True)
_ROW = Evidence(absolute=True)

#: By the name of the strategy.
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
