"""The consumer that settles promises: reads the stream in batches, has their orders written, and
takes them off the stream after the commit.

Any number may run: the rows of the products are locked first, and settling twice does nothing. One
that ends in the middle of a batch leaves the batch on the stream, for whoever looks next.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
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


class Settler:
    """One consumer.

    stop   set: it ends after its batch
    alive  a file that is touched after each look at the stream that met no error
    """

    def __init__(self, stop: threading.Event | None = None, *, alive: Path | None = None) -> None:
        self.alive = alive
        self.stop = stop or threading.Event()

    def run(self) -> None:
        """Settle until `stop` is set. An error of a server is logged and tried again."""
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                self.step()
                if self.alive is not None:
                    self.alive.touch()
            except redis.RedisError as error:
                self._try_later("Redis", error)
            except (DatabaseError, InterfaceError) as error:
                discard_dead(error)
                connection.close()
                self._try_later("PostgreSQL", error)
            self.stop.wait(max(0.0, began + EVERY - time.monotonic()))

    def step(self) -> int:
        """Settle the oldest batch. Returns how many promises it had. Raises redis.RedisError,
        DatabaseError: then the batch is still there."""
        entries: Any = locks_client().xrange(STREAM, count=BATCH)
        if entries:
            self._settle(entries)
        return len(entries)

    def _settle(self, entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> None:
        promises, ended = [], []
        for entry, fields in entries:
            try:
                promises.append(Promise.parse(entry, fields[b"seen"], fields[b"order"]))
            except (KeyError, ValueError, TypeError) as error:
                ended.append(_unreadable(entry, fields, error))
        endings = settle_each(promises) if promises else {}
        again = [one.key for one in promises if endings[one.entry] is Ending.AGAIN]
        if again:  # whoever asks again is answered with the order that there is
            remember(PurchaseHistory.objects.filter(idempotency_key__in=again), instead=True)
        point("settled", orders=len(promises))
        acknowledge([*((one.entry, one.sale, endings[one.entry]) for one in promises), *ended])

    def _try_later(self, server: str, error: Exception) -> None:
        logger.warning("%s: %s", server, error)
        self.stop.wait(PAUSE)


#: The id of an entry, its sale (0: nobody knows) and what became of it.
Ended = tuple[str, int, Ending]


def _unreadable(entry: bytes, fields: Mapping[bytes, bytes], error: Exception) -> Ended:
    """An entry that is no promise: a node of another version wrote it, or somebody else."""
    logger.error("the promise %s cannot be read (%r): it is set aside", entry.decode(), error)
    sale = fields.get(b"sale", b"")
    return entry.decode(), int(sale) if sale.isdigit() else 0, Ending.BROKEN


def acknowledge(ended: Sequence[Ended]) -> int:
    """Take settled promises off the stream. Returns how many were still on it. Raises
    redis.RedisError, and then they are settled once more, which does nothing."""
    sales = list(dict.fromkeys(sale for _, sale, _ in ended))
    keys = [key for sale in sales for key in (count_key(sale), books_key(sale))]
    args: list[str | int] = [KEEP, MOST_BROKEN]
    for entry, sale, ending in ended:
        args += [entry, sales.index(sale) + 1, ending.value]
    taken: int = lua("settled")(locks_client(), [STREAM, BROKEN, *keys], args)
    return taken
