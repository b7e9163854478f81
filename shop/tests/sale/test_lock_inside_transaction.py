"""A lock that is inside the transaction is free before the commit: refused, but by one name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.db import transaction

from shop import strategies
from shop.ops.redis import locks_client
from shop.sale import locked
from shop.sale.locked import LockInsideTransaction, held, on_redis
from shop.sale.purchase import Attempt
from shop.strategies.token import TokenLock
from shop.tests.till import APPLE, buy, committed, open_sale, rolled_back

SOURCES = {
    path.stem.replace("_", "-"): path.read_text()
    for path in (*Path(strategies.__file__).parent.glob("*.py"), Path(locked.__file__))
}


@committed
def test_the_error_is_raised_before_the_lock_is_taken_and_names_the_remedy() -> None:
    lock = on_redis(TokenLock)(Attempt(product=APPLE, buyer="ada", lock="token"))
    with transaction.atomic(), pytest.raises(LockInsideTransaction) as caught, held(lock):
        pytest.fail("the lock was taken inside a transaction")
    assert str(caught.value) == (
        "A lock taken inside a transaction is released before the commit, and the next buyer reads "
        "the old stock. Take the lock outside and open the transaction inside it: no "
        "ATOMIC_REQUESTS, no atomic() around a purchase. To see it oversell, ask for "
        "lock=redis-in-transaction."
    )
    assert locks_client().dbsize() == 0


@rolled_back
def test_the_transaction_around_a_test_is_not_counted() -> None:
    open_sale(1)
    assert buy(lock="token").status == 201
    with transaction.atomic(), pytest.raises(LockInsideTransaction):
        buy(lock="token")


def test_redis_in_transaction_is_the_only_one_that_takes_its_lock_there() -> None:
    override = "even_inside_a_transaction=True"
    assert [name for name, text in SOURCES.items() if override in text] == ["redis-in-transaction"]


def test_no_strategy_takes_a_lock_past_the_check() -> None:
    past = re.compile(r"(?<!super\(\))\.hold\((?!wait=\")")
    assert [name for name, text in SOURCES.items() if past.search(text)] == ["locked"]
