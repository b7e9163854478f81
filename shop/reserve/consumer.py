"""The consumer that settles promises: reads the stream in batches, has their orders written, and
takes them off the stream after the commit.

Any number may run: the rows of the products are locked first, and settling twice does nothing. One
that ends in the middle of a batch leaves the batch on the stream for the next.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import redis
from django.db import DatabaseError, InterfaceError, connection

from shop.lua import lua
from shop.models import PurchaseHistory
from shop.ops.connections import discard_dead
from shop.ops.redis import locks_client
from shop.reserve.promises import BROKEN, KEEP, STREAM, Promise, books_key, count_key, remember
from shop.reserve.settle import Ending, settle_each
from shop.sale.points import point

logger = logging.getLogger("shop.reserve.consumer")

#: Promises in one transaction at most.
BATCH = 500
#: Seconds from one batch to the next at least: what comes meanwhile shares a commit.
EVERY = 0.05
#: Broken promises that are kept to be made good.
MOST_BROKEN = 10_000
#: Seconds before trying again after an error.
PAUSE = 0.2


def run(stop: threading.Event, *, alive: Path | None = None) -> None:
    """Settle until `stop` is set; it ends after its batch. An error of a server is logged and tried
    again.

    alive  a file that is touched after each look at the stream that met no error
    """
    while not stop.is_set():
        began = time.monotonic()
        try:
            step()
            if alive is not None:
                alive.touch()
        except (redis.RedisError, DatabaseError, InterfaceError) as error:
            if not isinstance(error, redis.RedisError):
                discard_dead(error)
                connection.close()
            logger.warning("promises wait to be settled: %s", error)
            stop.wait(PAUSE)
        stop.wait(max(0.0, began + EVERY - time.monotonic()))


def step() -> int:
    """Settle the oldest batch. Returns how many promises it had. Raises redis.RedisError,
    DatabaseError: then the batch is still there."""
    entries: Any = locks_client().xrange(STREAM, count=BATCH)
    promises: list[Promise] = []
    ended: list[Ended] = []
    for entry, fields in entries:
        try:
            promises.append(Promise.parse(entry, fields[b"seen"], fields[b"order"]))
        except (KeyError, ValueError, TypeError) as error:  # another version's, or not a node's
            logger.error("promise %s cannot be read (%r): it is set aside", entry.decode(), error)
            sale = fields.get(b"sale", b"")
            ended.append((entry.decode(), int(sale) if sale.isdigit() else 0, Ending.BROKEN))
    if promises:
        endings = settle_each(promises)
        again = [one.key for one in promises if endings[one.entry] is Ending.AGAIN]
        if again:  # from now on these keys are answered with the order that they have
            remember(PurchaseHistory.objects.filter(idempotency_key__in=again), instead=True)
        point("settled", orders=len(promises))
        ended += [(one.entry, one.sale, endings[one.entry]) for one in promises]
    if ended:
        acknowledge(ended)
    return len(ended)


#: The id of an entry, its sale (0: nobody knows) and how it ended.
Ended = tuple[str, int, Ending]


def acknowledge(ended: list[Ended]) -> int:
    """Take settled promises off the stream. Returns how many were still on it. Raises
    redis.RedisError, and then they are settled once more, which does nothing."""
    sales = list(dict.fromkeys(sale for _, sale, _ in ended))
    keys = [key for sale in sales for key in (count_key(sale), books_key(sale))]
    args: list[str | int] = [KEEP, MOST_BROKEN]
    for entry, sale, ending in ended:
        args += [entry, sales.index(sale) + 1, ending.value]
    taken: int = lua("settled")(locks_client(), [STREAM, BROKEN, *keys], args)
    return taken
