"""Settlement figures: kept, broken and unsettled promises of a sale, and how late orders were."""

import logging
from collections import Counter
from math import ceil
from typing import Any, cast

import redis

from shop.lua import lua
from shop.ops.redis import locks_client
from shop.reserve.promises import STREAM, books_key, count_key, in_use
from shop.sale.reports import UNKNOWN

logger = logging.getLogger("shop.reserve.figures")

LAG = "lag:"


def settled_of(sale: int) -> dict[str, Any]:
    """How the promises of this sale ended, as far as its Redis remembers."""
    if not in_use():
        return {**UNKNOWN, "settled": 0, "unsettled": 0, "broken_promises": 0}
    client = locks_client()
    try:
        _, waiting = lua("promised")(client, [count_key(sale), STREAM], [sale])
        books = cast(dict[bytes, bytes], client.hgetall(books_key(sale)))  # last: none is missing
    except redis.RedisError as error:
        logger.warning("the promises of sale %s are not known: %s", sale, error)
        return UNKNOWN
    count = {name.decode(): int(value) for name, value in books.items()}
    return {
        "settled": count.get("kept", 0),
        "unsettled": len(waiting),
        "broken_promises": count.get("broken", 0) + count.get("again", 0),
        "settlement_lag_ms": _lag(count),
    }


def backlog() -> tuple[int, float]:
    """How many promises are unsettled, of all sales, and the age of the oldest in seconds. Raises
    redis.RedisError."""
    client = locks_client()
    count = client.xlen(STREAM)
    first: Any = client.xrange(STREAM, count=1)
    if not first:
        return count, 0.0
    seconds, microseconds = client.time()
    made = int(first[0][0].partition(b"-")[0]) / 1000
    return count, max(0.0, seconds + microseconds / 1_000_000 - made)


def _lag(count: dict[str, int]) -> dict[str, int] | None:
    """Percentiles by nearest rank."""
    times = {int(name.removeprefix(LAG)): n for name, n in count.items() if LAG in name}
    lags = sorted(Counter(times).elements())
    if not lags:
        return None
    longest = count["longest"]
    p50, p99 = (min(longest, lags[ceil(len(lags) * part / 100) - 1]) for part in (50, 99))
    return {"p50": p50, "p99": p99, "max": longest}
