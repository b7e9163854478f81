"""A counter in Redis hands out the units; PostgreSQL records the orders.

This is the usual way to keep the database free of buyers who get no unit. But two systems have to
agree:

    A reserves the last unit in Redis, and crashes before its order is written
    B is answered `sold_out`, and one unit stays unsold until the next restock

A lock that fails oversells; this strategy undersells instead. Three rules limit the damage. A
repeated attempt reserves only one unit. A reservation is cancelled only if the order certainly does
not exist. And PostgreSQL's decrement is relative, with a CHECK, so that a counter that lost its
data cannot oversell.

`point_reached.send` marks a point, at which a test or a demo can stop the purchase (see
shop/sale/points.py). In production it does nothing.
"""

import logging
from dataclasses import replace
from enum import IntEnum

import redis
from django.db import transaction

from shop.errors import SoldOut
from shop.lua import lua_script
from shop.ops.redis import locks_client
from shop.sale.points import point_reached
from shop.sale.purchase import (
    Attempt,
    Receipt,
    decrement_stock,
    read_stock,
    require_requested_sale,
    sell_one,
)
from shop.sale.strategy import Strategy

#: Lifetime of a sale's counter after its last buyer. Any time longer than a purchase is enough: if
#: the sale is still open afterwards, its next buyer starts a new counter from the stock in
#: PostgreSQL.
COUNTER_LIFETIME_MS = 24 * 3600 * 1000
logger = logging.getLogger("shop.strategies.counter")


class ReservationOutcome(IntEnum):
    """The outcome of reserve(): the first number that reserve_unit.lua returns."""

    SOLD_OUT = -1
    MADE_EARLIER = 0
    MADE_NOW = 1


def buy(attempt: Attempt) -> Receipt:
    stock = read_stock(attempt)
    require_requested_sale(attempt, stock)  # before a unit of another sale is reserved
    reservation_id = attempt.make_reservation_id()
    outcome, units_left = reserve(
        sale_id=stock.sale_id, reservation_id=reservation_id, initial_units=stock.amount
    )
    if outcome is ReservationOutcome.SOLD_OUT:
        raise SoldOut
    point_reached.send("reserved")  # a test or a demo can stop the purchase here
    # sell_one() refuses a stock of 0, so add the unit that is reserved for this buyer.
    stock_before_reservation = replace(stock, amount=units_left + 1)
    try:
        with transaction.atomic(durable=True):
            return sell_one(attempt, read=lambda _: stock_before_reservation, write=decrement_stock)
    except BaseException:  # also if the thread is interrupted
        # If the COMMIT has been sent, the order may exist, so the unit stays reserved.
        if outcome is ReservationOutcome.MADE_NOW and not attempt.may_have_committed:
            cancel_reservation(sale_id=stock.sale_id, reservation_id=reservation_id)
        raise


def reserve(
    *, sale_id: int, reservation_id: str, initial_units: int
) -> tuple[ReservationOutcome, int]:
    """Reserve one unit if one is left, unless an earlier request with this id has reserved one.

    Return the outcome and the number of unreserved units. If Redis has no counter for the sale, the
    counter begins at `initial_units`. Raises redis.RedisError.
    """
    point_reached.send("reserve")  # a test or a demo can stop the purchase here
    # This strategy takes no lock, but its counter is in the Redis of the locks.
    outcome, units_left = lua_script("reserve_unit")(
        locks_client(), counter_keys(sale_id), [reservation_id, initial_units, COUNTER_LIFETIME_MS]
    )
    return ReservationOutcome(outcome), units_left


def cancel_reservation(*, sale_id: int, reservation_id: str) -> None:
    """Cancel a reservation. If Redis does not answer, the unit stays reserved in this sale."""
    try:
        lua_script("give_back")(locks_client(), counter_keys(sale_id), [reservation_id])
    except redis.RedisError as error:
        logger.warning("a unit stays reserved until the next restock: %s", error)


def counter_keys(sale_id: int) -> list[str]:
    """Return the Redis keys of a sale's two values: its unreserved units, and its reservation ids.

    The braces put both keys into one slot of a Redis cluster.
    """
    return [f"stock:{{{sale_id}}}", f"stock:{{{sale_id}}}:held"]


STRATEGY = Strategy(
    rank=270,
    title="Counter in Redis",
    summary="Redis hands out the units, PostgreSQL records them; a crash in between undersells.",
    highlights=("= reserve(", "write=decrement_stock"),
    buy=buy,
    waits_at_write=True,
    sound=True,
    reserves=True,
)
