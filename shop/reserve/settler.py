"""The consumer that settles promises: reads the stream in batches, has their orders written, and
takes them off the stream after the commit.

Any number may run. What one has read and not settled within SHOP_SETTLE_IDLE another takes over
(XAUTOCLAIM), also when the first still lives: settling twice does nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from shop.lua import lua
from shop.models import PurchaseHistory
from shop.ops.connections import discard_dead
from shop.ops.redis import locks_client
from shop.promised import BROKEN, STREAM, Promise, books_key, count_key
from shop.reserve.promises import remember
from shop.reserve.reservations import KEEP
from shop.reserve.settle import Ending, settle_each
from shop.sale.points import point

logger = logging.getLogger("shop.reserve.settler")

GROUP = "settlers"
#: Promises in one transaction at most.
BATCH = 500
#: Seconds from one batch to the next at least: what comes meanwhile shares a commit.
EVERY = 0.05
#: Broken promises that are kept to be made good.
MOST_BROKEN = 10_000
#: Milliseconds to wait for a promise. Shorter than the client's timeout.
BLOCK = 500
#: Seconds before trying again after an error.
PAUSE = 0.2


class Settler:
    """One consumer of the group.

    name   of the consumer: no two that run may have the same
    stop   set: it ends after its batch
    alive  a file that is touched after each look at the stream that met no error
    """

    def __init__(
        self, name: str, stop: threading.Event | None = None, *, alive: Path | None = None
    ) -> None:
        self.name = name
        self.alive = alive
        self.stop = stop or threading.Event()
        self._client = locks_client()
        self._claimed_at = 0.0
        self._claims_from: Any = "0-0"
        self._failed = False

    def run(self) -> None:
        """Settle until `stop` is set. An error of a server is logged and tried again."""
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                self.step(block=BLOCK)
                if self.alive is not None:
                    self.alive.touch()
            except redis.RedisError as error:
                self._try_later("Redis", error)
            except (DatabaseError, InterfaceError) as error:
                discard_dead(error)
                connection.close()
                self._try_later("PostgreSQL", error)
            self.stop.wait(max(0.0, began + EVERY - time.monotonic()))
        self._leave()

    def step(self, *, block: int | None = None) -> int:
        """Settle one batch, waiting for it for `block` milliseconds. Returns how many promises it
        had. Raises redis.RedisError, DatabaseError: what was read is taken over later."""
        try:
            entries = self._own() or self._claim() or self._read(block)
        except redis.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            self._begin()  # a new Redis, or one that lost its data
            return 0
        if entries:
            self._failed = True
            self._settle(entries)
            self._failed = False
        return len(entries)

    def _begin(self) -> None:
        try:
            self._client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):  # another consumer was first
                raise

    def _own(self) -> Sequence[Any]:
        """What this consumer read and failed to settle: nobody has to wait until it is idle."""
        if not self._failed:
            return []
        found: Any = self._client.xreadgroup(GROUP, self.name, {STREAM: "0"}, count=BATCH)
        return self._there(found[0][1]) if found else []

    def _claim(self) -> Sequence[Any]:
        """What was read by a consumer that did not settle it."""
        now = time.monotonic()
        if self._claims_from == b"0-0" and now < self._claimed_at + settings.SHOP_SETTLE_IDLE / 4:
            return []
        self._claimed_at = now
        idle = round(settings.SHOP_SETTLE_IDLE * 1000)
        found: Any = self._client.xautoclaim(
            STREAM, GROUP, self.name, idle, start_id=self._claims_from, count=BATCH
        )
        self._claims_from = found[0]
        return self._there(found[1])

    def _there(self, entries: Sequence[Any]) -> Sequence[Any]:
        """Those that are on the stream still: one that was deleted meanwhile has no fields, and
        would be pending forever."""
        if gone := [entry for entry, fields in entries if not fields]:
            self._client.xack(STREAM, GROUP, *gone)
        return [one for one in entries if one[1]]

    def _read(self, block: int | None) -> Sequence[Any]:
        found: Any = self._client.xreadgroup(
            GROUP, self.name, {STREAM: ">"}, count=BATCH, block=block
        )
        return found[0][1] if found else []

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
        self._claimed_at = 0.0
        self.stop.wait(PAUSE)

    def _leave(self) -> None:
        """Forget this consumer, unless something that it read is not settled."""
        try:
            pending: Any = self._client.xpending_range(
                STREAM, GROUP, min="-", max="+", count=1, consumername=self.name
            )
            if not pending:
                self._client.xgroup_delconsumer(STREAM, GROUP, self.name)
        except redis.RedisError as error:
            logger.warning("this consumer's name stays: %s", error)


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
    args: list[str | int] = [GROUP, KEEP, MOST_BROKEN]
    for entry, sale, ending in ended:
        args += [entry, sales.index(sale) + 1, ending.value]
    taken: int = lua("settled")(locks_client(), [STREAM, BROKEN, *keys], args)
    return taken
