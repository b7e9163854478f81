"""One row for each unit: SELECT ... FOR UPDATE SKIP LOCKED gives every buyer one of its own.

The way of queues in a database. Nobody waits while there is a unit that nobody has. But rows that
are locked are not sold yet:

    A and B have the last two units, C finds every row locked
    A commits, B rolls back, and one unit is left

So C must not be answered `sold_out`: it asks once more without SKIP LOCKED, and waits. What that
finds is the truth: a unit that was given back, or no row that is not sold.
"""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction

from shop.models import Unit
from shop.purchase import Attempt, Receipt, Stock, read_stock, sell_one
from shop.shelves import fill_units, none_found, refilled
from shop.strategy import Strategy


def lock_a_unit(attempt: Attempt) -> Stock:
    stock = read_stock(attempt)
    unsold = Unit.objects.filter(sale_id=stock.sale_id).order_by("-number")
    unit = unsold.select_for_update(skip_locked=True).first()
    if unit is None:  # all sold, or the rest is locked by others
        unit = unsold.select_for_update().first()
    if unit is None:
        return none_found(stock)
    return replace(stock, amount=unit.number, place=unit.number)


def delete_it(attempt: Attempt, stock: Stock) -> None:
    Unit.objects.filter(sale_id=stock.sale_id, number=stock.place).delete()


@refilled(fill_units)
def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt, read=lock_a_unit, write=delete_it)


STRATEGY = Strategy(
    name="skip-locked",
    title="SKIP LOCKED",
    article="beyond",
    summary="One row a unit: each buyer takes one that nobody has, and waits only where all are.",
    buy=buy,
    backend="postgresql",
    sound=True,
    fill=fill_units,
)
