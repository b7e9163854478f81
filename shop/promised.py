"""A promise: a unit that Redis has given to a buyer, and the order that is written for it later."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import redis
from django.conf import settings

from shop.lua import lua
from shop.ops.redis import locks_client

logger = logging.getLogger("shop.promises")

#: The strategy that sells like this.
LOCK = "reserve"
#: All keys are in one cluster slot: one script takes the unit and writes to the stream.
PREFIX = f"stock:{{{LOCK}}}"
STREAM = f"{PREFIX}:promises"
#: Entries of that stream whose order nobody will write, for whoever makes it good: the last
#: MOST_BROKEN or some more. `entry` is the id that each had.
BROKEN = f"{PREFIX}:broken"


@dataclass(frozen=True, slots=True)
class Promise:
    """A unit that was promised, and the order that is written for it.

    order       the order's number
    stock_seen  units that there were before it
    entry       its id on the stream: milliseconds of Redis's clock, and a number; empty for one
                that was read from its attempt
    """

    order: int
    sale: int
    product: int
    product_name: str
    buyer: str
    key: str | None
    fingerprint: str
    stock_seen: int = 0
    entry: str = ""

    @property
    def brief(self) -> str:
        """What is kept for its attempt, but for the units."""
        return f"{self.order} {self.sale} {self.fingerprint}"

    @property
    def made_at(self) -> float:
        """When it was made: seconds since 1970 by Redis's clock."""
        return int(self.entry.partition("-")[0]) / 1000

    @classmethod
    def parse(cls, entry: bytes, seen: bytes, order: bytes) -> Self:
        """An entry of the stream. Raises ValueError or TypeError."""
        found = cls(**json.loads(order) | {"stock_seen": int(seen), "entry": entry.decode()})
        numbers = (found.order, found.sale, found.product)
        words = (found.product_name, found.buyer, found.key or "", found.fingerprint)
        if not all(type(one) is int for one in numbers) or not all(type(w) is str for w in words):
            raise TypeError("an order's numbers are whole, and its words are text")
        return found


def count_key(sale: int) -> str:
    """Where the units of a sale are that nobody was promised."""
    return f"{PREFIX}:{sale}"


def books_key(sale: int) -> str:
    """Where it is counted what became of the promises of a sale."""
    return f"{PREFIX}:{sale}:books"


def attempt_key(holder: str) -> str:
    """Where an attempt's promise is kept, whatever the sale: a key has one order."""
    return f"{PREFIX}:by:{holder}"


def in_use() -> bool:
    """Whether this shop may have promised anything: else Redis is not asked."""
    return bool(settings.SHOP_DEMO or settings.SHOP_LOCK == LOCK)


def promised(sale: int) -> tuple[int | None, list[Promise]]:
    """Units of a sale that nobody was promised, None where Redis does not sell it; and the promises
    that are not settled, but for those that nobody can read. Raises redis.RedisError."""
    left, entries = _promised(sale)
    found = []
    for entry in entries:
        with suppress(ValueError, TypeError):  # a consumer sets it aside
            found.append(Promise.parse(*entry))
    return left, found


def unsettled(sale: int) -> int:
    """How many promises of a sale are not settled. Raises redis.RedisError."""
    return len(_promised(sale)[1])


def close_sale(sale: int) -> None:
    """Promise nothing more of this sale. Call it while its product's row is locked: nobody begins
    it again before the transaction has ended. Raises redis.RedisError, but in a demo."""
    if not in_use():
        return
    try:
        locks_client().delete(count_key(sale))
    except redis.RedisError as error:
        if not settings.SHOP_DEMO:
            raise
        logger.warning("Redis may still sell sale %s: %s", sale, error)


def _promised(sale: int) -> tuple[int | None, list[list[bytes]]]:
    left, entries = lua("promised")(locks_client(), [count_key(sale), STREAM], [sale])
    return (int(left) if left else None), entries
