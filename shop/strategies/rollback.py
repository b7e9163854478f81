"""Decrement, and roll back below zero: the CHECK constraint is the check that counts.

A1's simpler optimistic way: "when the inventory is less than zero after each purchase, the
transaction can be rolled back". It needs the relative decrement: an absolute one writes 99, 98,
... and never goes below zero.
"""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.db.models import F

from shop.errors import SaleClosed, SoldOut
from shop.models import Product
from shop.purchase import Attempt, Receipt, Stock, sell_one
from shop.strategies.registry import Strategy, verdicts


def decrement_whatever_is_there(attempt: Attempt, stock: Stock) -> None:
    shelf = Product.objects.filter(pk=stock.product_id, sale_id=stock.sale_id)
    try:
        if not shelf.update(amount=F("amount") - 1):
            raise SaleClosed
    except IntegrityError as error:  # product_amount_not_negative
        raise SoldOut from error


def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt, write=decrement_whatever_is_there)


STRATEGY = Strategy(
    name="rollback",
    title="Decrement, roll back below zero",
    article="A1 optimistic",
    summary="A relative decrement, and a CHECK constraint that refuses the one too many.",
    buy=buy,
    sound=True,
    expected=verdicts(
        exact="rush crash slow pause unknown-commit redis-down db-kill shutdown shutdown@short",
    ),
)
