"""Units of a sale, each held in Redis by the attempt that is about to buy it."""

from __future__ import annotations

import logging
import uuid

import redis

from shop.lua import lua
from shop.ops.redis import locks_client
from shop.sale.points import point
from shop.sale.purchase import Attempt

logger = logging.getLogger("shop.reserve.reservations")

#: Milliseconds that a sale's counter is kept after its last buyer. A restock has a new one.
KEEP = 24 * 3600 * 1000


def reserve(*, sale_id: int, holder: str, stock: int) -> tuple[int, int]:
    """Hold one unit for `holder`; where the counter is not there (any more) it begins at `stock`.

    (1, units left) reserved now, (0, units left) held already, (-1, 0) sold out. Raises
    redis.RedisError.
    """
    point("reserve")
    reserved, left = lua("reserve")(locks_client(), keys_of(sale_id), [holder, stock, KEEP])
    return reserved, left


def give_back(*, sale_id: int, holder: str) -> None:
    """Hold it no longer. If Redis does not answer, the unit stays reserved until the restock."""
    try:
        lua("give_back")(locks_client(), keys_of(sale_id), [holder])
    except redis.RedisError as error:
        logger.warning("a unit stays reserved until the next restock: %s", error)


def holder_of(attempt: Attempt) -> str:
    """Who holds a unit: a repeated request is the same holder, if it has a key."""
    return attempt.key or uuid.uuid4().hex


def keys_of(sale_id: int) -> list[str]:
    """Units that nobody holds, and the attempts that hold one: in one cluster slot."""
    return [f"stock:{{{sale_id}}}", f"stock:{{{sale_id}}}:held"]
