"""Figures on promises. A promise is a unit that Redis has sold, and whose order is written later.

The figures are the numbers of settled, unsettled and broken promises, and the time from a promise
to its order. SaleReport (shop/sale/reports.py) explains them.
"""

import logging
from collections import Counter
from math import ceil
from typing import Any, cast

import redis

from shop.lua import lua_script
from shop.ops.redis import locks_client
from shop.reserve.promises import STREAM, can_have_promises, counter_key, endings_key
from shop.sale.reports import UNKNOWN_SETTLEMENT

logger = logging.getLogger("shop.reserve.settlement_report")

#: Prefix of the fields in which settle_promises.lua counts promises by their lag, the milliseconds
#: from the promise to its order.
LAG_FIELD_PREFIX = "lag:"


def read_settlement(sale: int) -> dict[str, Any]:
    """Return how many of a sale's promises have an order, and the other figures of SaleReport.

    A promise is a unit that Redis has sold, and whose order is written later, under the strategy
    `reserve`. In a shop without that strategy the counts are 0. If Redis does not answer, return
    UNKNOWN_SETTLEMENT.
    """
    if not can_have_promises():
        return {**UNKNOWN_SETTLEMENT, "settled": 0, "unsettled": 0, "broken_promises": 0}
    client = locks_client()
    try:
        _, unsettled = lua_script("list_promises")(client, [counter_key(sale), STREAM], [sale])
        # Read the counts after the stream. In the other order, a promise that is settled between
        # the two reads would not be counted at all; now it is counted twice.
        fields = cast(dict[bytes, bytes], client.hgetall(endings_key(sale)))
    except redis.RedisError as error:
        logger.warning("the promises of sale %s cannot be read: %s", sale, error)
        return UNKNOWN_SETTLEMENT
    # The fields `kept`, `broken` and `again` are the values of settle.Ending.
    count_by_field = {name.decode(): int(number) for name, number in fields.items()}
    return {
        "settled": count_by_field.get("kept", 0),
        "unsettled": len(unsettled),
        "broken_promises": count_by_field.get("broken", 0) + count_by_field.get("again", 0),
        "settlement_lag_ms": _compute_lag_percentiles(count_by_field),
    }


def read_backlog() -> tuple[int, float]:
    """Return the number of unsettled promises of all sales, and the age of the oldest in seconds.

    An unsettled promise is a unit that Redis has sold, but that has no order in the database yet.
    Raises redis.RedisError.
    """
    client = locks_client()
    count = client.xlen(STREAM)
    oldest_entries: Any = client.xrange(STREAM, count=1)
    if not oldest_entries:
        return count, 0.0
    entry, _ = oldest_entries[0]  # the id of an entry begins with the time in milliseconds
    seconds, microseconds = client.time()
    promised_at = int(entry.partition(b"-")[0]) / 1000
    return count, max(0.0, seconds + microseconds / 1_000_000 - promised_at)


def _compute_lag_percentiles(count_by_field: dict[str, int]) -> dict[str, int] | None:
    """Return p50, p99 (by nearest rank) and max of the lags in ms. None if no promise is settled.

    A promise is a unit that Redis has sold to a buyer. A lag is the time from a promise to the
    commit of its order.

    count_by_field  the hash that settle_promises.lua writes. A field such as `lag:20` is the number
                    of promises whose lag was 20 ms
    """
    promises_by_lag = {
        int(name.removeprefix(LAG_FIELD_PREFIX)): number
        for name, number in count_by_field.items()
        if name.startswith(LAG_FIELD_PREFIX)
    }
    lags = sorted(Counter(promises_by_lag).elements())  # one lag per promise
    if not lags:
        return None
    # The longest lag is exact. The other lags are rounded up, so they may exceed it.
    longest_lag = count_by_field["longest"]
    p50 = min(longest_lag, _find_nearest_rank(lags, percent=50))
    p99 = min(longest_lag, _find_nearest_rank(lags, percent=99))
    return {"p50": p50, "p99": p99, "max": longest_lag}


def _find_nearest_rank(sorted_lags: list[int], *, percent: int) -> int:
    """Return the smallest lag that is at least as long as `percent` % of all lags."""
    return sorted_lags[ceil(len(sorted_lags) * percent / 100) - 1]
