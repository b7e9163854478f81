"""A counter in Redis hands out the units; PostgreSQL records who has one.

The usual way to keep a rush off the database. Two systems now have to agree:

    A reserves the last unit in Redis, and crashes before its order is written
    B is told that all is sold, and one unit stays on the shelf until the next restock

It undersells where the locks oversell. What makes it bearable: a reservation is idempotent by
attempt, it is given back only when the order certainly does not exist, and the decrement in
PostgreSQL is relative, under its CHECK, so that a counter that forgot cannot oversell.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from django.db import transaction

from locks.points import point
from shop.errors import SoldOut
from shop.purchase import Attempt, Receipt, read_stock, sell_one
from shop.reservations import give_back, reserve
from shop.strategies.registry import Strategy, verdicts
from shop.strategies.rollback import decrement_whatever_is_there


def buy(attempt: Attempt) -> Receipt:
    stock = read_stock(attempt)
    holder = attempt.key or uuid.uuid4().hex
    reserved, left = reserve(sale_id=stock.sale_id, holder=holder, stock=stock.amount)
    if reserved < 0:
        raise SoldOut
    point("reserved")
    counted = replace(stock, amount=left + 1)
    try:
        with transaction.atomic(durable=True):
            return sell_one(attempt, read=lambda _: counted, write=decrement_whatever_is_there)
    except BaseException:
        if reserved and not attempt.committing:  # else the order may exist
            give_back(sale_id=stock.sale_id, holder=holder)
        raise


STRATEGY = Strategy(
    name="counter",
    title="Counter in Redis",
    article="beyond",
    summary="Redis hands out the units, PostgreSQL records them; a crash in between undersells.",
    buy=buy,
    sound=True,
    expected=verdicts(
        exact=(
            "rush pause restart failover failover@sentinel lost-reply unknown-commit busy "
            "redis-down stall eviction db-kill shutdown"
        ),
        undersold="crash shutdown@short",
    ),
    stops={"crash": "reserved", "db-kill": "before_commit"},
)
