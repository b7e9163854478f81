"""The stock split over several rows: buyers of one product write different ones, side by side.

Everywhere else each buyer waits for the one row that the buyer before wrote. Here each takes a unit
from a bucket at random among those that have one, by a conditional UPDATE; if others emptied that
one first, the whole purchase begins anew with another. A bucket is never filled again, so a read
that finds all empty, in one snapshot, is the proof of `sold_out`. What it costs: a sum over the
rows instead of one figure, and tries that meet an emptied bucket, at the end of a sale.
"""

from __future__ import annotations

import random
from dataclasses import replace

from django.db import transaction
from django.db.models import F

from shop.models import Bucket
from shop.purchase import Attempt, Receipt, Stock, read_stock, sell_one
from shop.retrying import Conflict, until_it_fits
from shop.shelves import fill_buckets, none_found, refilled
from shop.strategy import Strategy


def choose_a_bucket(attempt: Attempt) -> Stock:
    stock = read_stock(attempt)
    filled = Bucket.objects.filter(sale_id=stock.sale_id, amount__gt=0)
    left = dict(filled.values_list("number", "amount"))
    if not left:
        return none_found(stock)
    # The product's row has none then: what it had a statement ago was moved meanwhile.
    return replace(stock, amount=sum(left.values()), place=random.choice([*left]))


def take_one(attempt: Attempt, stock: Stock) -> None:
    bucket = Bucket.objects.filter(sale_id=stock.sale_id, number=stock.place)
    if not bucket.filter(amount__gt=0).update(amount=F("amount") - 1):
        raise Conflict  # rolled back: whoever waits for another bucket holds none


@until_it_fits
@refilled(fill_buckets)
def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt, read=choose_a_bucket, write=take_one)


STRATEGY = Strategy(
    name="buckets",
    title="Stock in buckets",
    article="beyond",
    summary="The stock is split over 16 rows, and each buyer takes from one at random.",
    buy=buy,
    backend="postgresql",
    sound=True,
    fill=fill_buckets,
)
