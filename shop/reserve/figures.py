"""What became of the promises of a sale, and how long their orders took to be written."""

from __future__ import annotations

import logging
from math import ceil
from typing import Any, cast

import redis

from shop.ops.redis import locks_client
from shop.reserve.promises import STREAM, books_key, in_use, unsettled
from shop.sale.reports import NONE, UNKNOWN, Settled

logger = logging.getLogger("shop.reserve.figures")

LAG = "lag:"


def settled_of(sale: int) -> Settled:
    """What became of the promises of this sale, as far as its Redis remembers."""
    if not in_use():
        return NONE
    client = locks_client()
    try:
        waiting = unsettled(sale) if client.xlen(STREAM) else 0
        books = cast(dict[bytes, bytes], client.hgetall(books_key(sale)))  # last: none is missing
    except redis.RedisError as error:
        logger.warning("the promises of sale %s are not known: %s", sale, error)
        return UNKNOWN
    count = {name.decode(): int(value) for name, value in books.items()}
    return Settled(
        settled=count.get("kept", 0),
        unsettled=waiting,
        broken_promises=count.get("broken", 0) + count.get("again", 0),
        settlement_lag_ms=_lag(count),
    )


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
    lags = sorted(
        (int(name.removeprefix(LAG)), times) for name, times in count.items() if LAG in name
    )
    if not lags:
        return None
    longest = count["longest"]
    return {f"p{part}": min(longest, _percentile(lags, part)) for part in (50, 99)} | {
        "max": longest
    }


def _percentile(lags: list[tuple[int, int]], part: int) -> int:
    rank = ceil(sum(times for _, times in lags) * part / 100)
    for lag, times in lags:
        rank -= times
        if rank <= 0:
            return lag
    return lags[-1][0]
