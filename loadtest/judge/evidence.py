"""What the history of a correct sale shows, strategy by strategy.

These are the load test's own expectations, not the shop's statements: whoever is judged does not
choose the rules. A test compares the names with the shop's own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the history of a correct sale shows of each order."""

    locked: bool = False  # its stock was read, and it was committed, inside a hold of the lock
    own_token: bool = False  # no two grants share one: not where a holder may enter its lock again
    fenced: bool = False  # it carries the fence of its grant
    #: The stock was written as it was read, less one: so each order reads one unit less than the
    #: order before it.
    absolute: bool = False
    #: Every buyer writes the product's row before its order: so orders are committed in the order
    #: of their numbers.
    one_row: bool = True
    #: Orders are committed in the order of their numbers: not so where a number is drawn before
    #: the unit is taken.
    numbered: bool = True
    own_unit: bool = False  # the stock that an order saw is the number of its unit: none is twice
    reserves: bool = False  # a unit is reserved in Redis before the order is committed,
    promises: bool = False  # and that promise is the order: a consumer writes it later


#: Keys that may stay on a lock server after a sale: the last fence of a name, the units that the
#: counter has reserved or promised, and keys that belong to no lock.
STAYS = re.compile(
    r"(lock:\{.*\}:fence|stock:\{(\d+\}(:held)?|reserve\}:.*)|throttle:.*|page:.*|:1:.*)\Z"
)

NO_EVIDENCE = Evidence()
_LOCK = Evidence(locked=True, own_token=True, absolute=True)
_FENCED = Evidence(locked=True, own_token=True, fenced=True, absolute=True)
_ROW = Evidence(absolute=True)

EVIDENCE: Mapping[str, Evidence] = {
    "none": _ROW,
    "autocommit": _ROW,
    **dict.fromkeys(
        (
            *("process", "setnx", "setnx-expire", "setnx-expire-repair", "setnx-expire-lua"),
            *("setnx-timestamp", "setnx-timestamp-del", "setpx-del", "token-get-del", "token"),
            *("token-watchdog", "redlock", "zookeeper", "redis-in-transaction"),
        ),
        _LOCK,
    ),
    "reentrant": Evidence(locked=True, absolute=True),
    **dict.fromkeys(("redis", "one-file", "fence-at-write"), _FENCED),
    **dict.fromkeys(("advisory", "row-lock", "version", "serializable"), _ROW),
    **dict.fromkeys(("rollback", "conditional"), NO_EVIDENCE),
    "counter": Evidence(reserves=True),
    "buckets": Evidence(one_row=False),
    "skip-locked": Evidence(one_row=False, own_unit=True),
    "reserve": Evidence(numbered=False, own_unit=True, reserves=True, promises=True),
}
