"""A counter in Redis hands out the units; PostgreSQL records who has one.

The usual way to keep a rush off the database. Two systems now have to agree:

    A reserves the last unit in Redis, and crashes before its order is written
    B is told that all is sold, and one unit stays on the shelf until the next restock

It undersells where the locks oversell. What makes it bearable: a reservation is idempotent by
attempt, it is given back only when the order certainly does not exist, and the decrement in
PostgreSQL is relative, under its CHECK, so that a counter that forgot cannot oversell.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace

import redis
from django.conf import settings
from django.db import transaction

from locks.points import point
from locks.scripts import script
from shop.errors import SoldOut
from shop.purchase import Attempt, Receipt, read_stock, sell_one
from shop.strategies.locked import locks_client
from shop.strategies.registry import Strategy
from shop.strategies.rollback import decrement_whatever_is_there

logger = logging.getLogger("shop.strategies.counter")

#: Milliseconds that a sale's counter is kept after its last buyer. A restock has a new one.
KEEP = 24 * 3600 * 1000


def buy(attempt: Attempt) -> Receipt:
    stock = read_stock(attempt)
    keys = [f"stock:{{{stock.sale_id}}}", f"stock:{{{stock.sale_id}}}:held"]
    holder = attempt.key or uuid.uuid4().hex
    reserved, left = script("reserve", settings.SHOP_LUA)(
        locks_client(), keys, [holder, stock.amount, KEEP]
    )
    if reserved < 0:
        raise SoldOut
    point("reserved")
    try:
        with transaction.atomic(durable=True):
            return sell_one(
                attempt,
                read=lambda _: replace(stock, amount=left + 1),
                write=decrement_whatever_is_there,
            )
    except BaseException:
        if reserved and not attempt.committing:  # else the order may exist
            _give_back(keys, holder)
        raise


def _give_back(keys: list[str], holder: str) -> None:
    try:
        script("give_back", settings.SHOP_LUA)(locks_client(), keys, [holder])
    except redis.RedisError as error:
        logger.warning("a unit stays reserved until the next restock: %s", error)


STRATEGY = Strategy(
    name="counter",
    title="Counter in Redis",
    article="beyond",
    summary="Redis hands out the units, PostgreSQL records them; a crash in between undersells.",
    buy=buy,
    expected={"rush": "exact"},
)
