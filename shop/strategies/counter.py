"""A counter in Redis hands out the units; PostgreSQL records the orders.

The usual way to keep a rush off the database. Now two systems have to agree:

    A reserves the last unit in Redis, and crashes before its order is written
    B is answered `sold_out`, and one unit stays on the shelf until the next restock

It undersells where the locks oversell. Three rules limit the damage. A repeated attempt reserves
only one unit. A unit is given back only if the order certainly does not exist. And PostgreSQL's
decrement is relative, with a CHECK, so that a counter that lost its data cannot oversell.
"""

import logging
from dataclasses import replace

import redis
from django.db import transaction

from shop.errors import SoldOut
from shop.lua import lua
from shop.ops.redis import locks_client
from shop.sale.points import point
from shop.sale.purchase import (
    Attempt,
    Receipt,
    read_stock,
    require_requested_sale,
    sell_one,
    write_relative,
)
from shop.sale.strategy import Strategy

#: Lifetime of a sale's counter after its last buyer. The next sale has a new one.
COUNTER_LIFETIME_MS = 24 * 3600 * 1000
logger = logging.getLogger("shop.strategies.counter")


def buy(attempt: Attempt) -> Receipt:
    stock = read_stock(attempt)
    require_requested_sale(attempt, stock)  # before a unit of another sale is reserved
    reservation_id = attempt.make_reservation_id()
    reserved, left = reserve(
        sale_id=stock.sale_id, reservation_id=reservation_id, stock=stock.amount
    )
    if reserved < 0:
        raise SoldOut
    point.send("reserved")
    stock_in_counter = replace(stock, amount=left + 1)
    try:
        with transaction.atomic(durable=True):
            return sell_one(attempt, read=lambda _: stock_in_counter, write=write_relative)
    except BaseException:
        if reserved and not attempt.committing:  # after the COMMIT was sent, the order may exist
            give_back(sale_id=stock.sale_id, reservation_id=reservation_id)
        raise


def reserve(*, sale_id: int, reservation_id: str, stock: int) -> tuple[int, int]:
    """Reserve one unit for `holder`. A missing counter begins at `stock`.

    Return (1, units left) if the unit is reserved now, (0, units left) if an earlier request of the
    same holder has reserved one, and (-1, 0) if none is left. Raises redis.RedisError.
    """
    point.send("reserve")
    reserved, left = lua("reserve_unit")(
        locks_client(), counter_keys(sale_id), [reservation_id, stock, COUNTER_LIFETIME_MS]
    )
    return reserved, left


def give_back(*, sale_id: int, reservation_id: str) -> None:
    """Give the holder's unit back. Without a reply it stays reserved until the restock."""
    try:
        lua("give_back")(locks_client(), counter_keys(sale_id), [reservation_id])
    except redis.RedisError as error:
        logger.warning("a unit stays reserved until the next restock: %s", error)


def counter_keys(sale_id: int) -> list[str]:
    """Return the keys of the free units and of the holders, both in one cluster slot."""
    return [f"stock:{{{sale_id}}}", f"stock:{{{sale_id}}}:held"]


STRATEGY = Strategy(
    rank=270,
    title="Counter in Redis",
    summary="Redis hands out the units, PostgreSQL records them; a crash in between undersells.",
    marks=("= reserve(", "write=write_relative"),
    buy=buy,
    waits_at_write=True,
    sound=True,
    reserves=True,
)
