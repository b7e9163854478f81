"""A counter in Redis hands out the units; PostgreSQL records who has one.

The usual way to keep a rush off the database. Two systems now have to agree:

    A reserves the last unit in Redis, and crashes before its order is written
    B is answered `sold_out`, and one unit stays on the shelf until the next restock

It undersells where the locks oversell. What makes it bearable: a reservation is idempotent by
attempt, it is given back only when the order certainly does not exist, and the decrement in
PostgreSQL is relative, under its CHECK, so that a counter that forgot cannot oversell.
"""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction

from shop.errors import SoldOut
from shop.reserve.reservations import give_back, holder_of, reserve
from shop.sale.points import point
from shop.sale.purchase import (
    Attempt,
    Receipt,
    read_stock,
    require_its_sale,
    sell_one,
    write_relative,
)
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    stock = read_stock(attempt)
    require_its_sale(attempt, stock)  # before a unit of another sale is reserved
    holder = holder_of(attempt)
    reserved, left = reserve(sale_id=stock.sale_id, holder=holder, stock=stock.amount)
    if reserved < 0:
        raise SoldOut
    point("reserved")
    counted = replace(stock, amount=left + 1)
    try:
        with transaction.atomic(durable=True):
            return sell_one(attempt, read=lambda _: counted, write=write_relative)
    except BaseException:
        if reserved and not attempt.committing:  # else the order may exist
            give_back(sale_id=stock.sale_id, holder=holder)
        raise


STRATEGY = Strategy(
    place=270,
    name="counter",
    title="Counter in Redis",
    article="beyond",
    summary="Redis hands out the units, PostgreSQL records them; a crash in between undersells.",
    marks=("= reserve(", "write=write_relative"),
    buy=buy,
    backend="redis",
    sound=True,
    reserves=True,
)
