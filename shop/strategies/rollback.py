"""Decrement, and roll back below zero: a CHECK constraint refuses an order without a unit left.

This is the simpler optimistic way of article A1 (docs/sources.md): "when the inventory is less than
zero after each purchase, the transaction can be rolled back". The decrement must be relative
(`amount = amount - 1`). A buyer who instead subtracts one from the stock that it has read never
writes a number below zero, so the CHECK would refuse nothing.
"""

from django.db import transaction

from shop.sale.purchase import Attempt, Receipt, decrement_stock, sell_one
from shop.sale.strategy import Strategy


def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt, write=decrement_stock)


STRATEGY = Strategy(
    rank=220,
    title="Decrement, roll back below zero",
    article="A1 optimistic",
    summary="A relative decrement, and a CHECK constraint that refuses the order without a unit.",
    highlights=('update(amount=F("amount") - 1)', "raise SoldOut from error"),
    buy=buy,
    waits_at_write=True,
    backend="postgresql",
    sound=True,
)
