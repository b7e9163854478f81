"""A purchase is bound to the sale that its buyer came for."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest

from servers.embedded import ROOT
from shop import errors
from shop.demo.interleaving import Interleaving
from shop.ops.redis import locks_client
from shop.strategies import STRATEGIES
from shop.strategies.counter import keys_of
from shop.tests.till import APPLE, books, buy, committed, eventually, open_sale

#: Those that need no server beside PostgreSQL and Redis.
LOCKS = [name for name, strategy in STRATEGIES.items() if not strategy.needs]
CLOSED = {
    "outcome": "closed",
    "error": "The sale that you came for is over; nothing was sold. Buy in the one that is open.",
}


@committed
@pytest.mark.parametrize("lock", LOCKS)
def test_who_comes_for_a_sale_that_is_over_buys_nothing_of_the_next_one(
    lock: str,
) -> None:
    first = open_sale(5)
    second = open_sale(7)
    late = buy(lock=lock, key="late", sale=first.pk)
    assert (late.status, late.body) == (410, CLOSED)
    assert "Retry-After" not in late.headers
    assert books() == (0, 7)
    in_time = buy(lock=lock, key="in-time", sale=second.pk)
    assert (in_time.status, in_time.body["sale"]) == (201, second.pk)


@committed
def test_a_late_buyer_reserves_no_unit_of_the_next_sale() -> None:
    first, second = open_sale(5), open_sale(7)
    buy(lock="counter", key="late", sale=first.pk)
    assert locks_client().exists(*keys_of(second.pk)) == 0


@committed
def test_who_waited_for_the_lock_until_the_next_sale_was_open_is_refused() -> None:
    """Without the sale in its request the unit would be sold out of the next one."""
    first = open_sale(5)
    with Interleaving() as run:
        holder = run.enter("holder", partial(buy, lock="redis", buyer="holder", sale=first.pk))
        holder.runs_to("after_read")
        waiter = run.enter("waiter", partial(buy, lock="redis", buyer="waiter", sale=first.pk))
        waiter.starts()
        eventually(somebody_queues, what="the waiter queues for the lock")
        assert holder.finishes().status == 201
        second = open_sale(7)
        assert waiter.finishes().body == CLOSED
    assert (second.orders.count(), books()[1]) == (0, 7)


def somebody_queues() -> bool:
    return locks_client().zcard("lock:{redis:apple}:places") > 0


@committed
def test_a_key_that_has_bought_gets_its_order_though_its_sale_is_over() -> None:
    first = open_sale(5)
    bought = buy(key="k1", sale=first.pk)
    open_sale(7)
    again = buy(key="k1", sale=first.pk)
    assert (again.status, again.body["order"]) == (200, bought.body["order"])
    assert books(APPLE) == (1, 7)


def test_every_error_has_its_message_under_python_oo_too() -> None:
    """-OO leaves docstrings out: the message of an error must not be one."""
    program = (
        "from shop import errors\n"
        "for kind in vars(errors).values():\n"
        "    if isinstance(kind, type) and issubclass(kind, errors.ShopError):\n"
        "        print(kind(seconds=1) if kind in (errors.Throttled, errors.Full) else kind())\n"
    )
    done = subprocess.run(
        [sys.executable, "-OO", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert errors.SoldOut.text in done.stdout.splitlines()
    assert "" not in done.stdout.splitlines()
