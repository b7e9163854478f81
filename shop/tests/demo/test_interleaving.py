"""Two buyers and the last unit, step by step: how `none` oversells, and why a lock cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.db import connection

from shop.demo.interleaving import Actor, Interleaving, is_passed
from shop.errors import SoldOut
from shop.ops.redis import locks_client
from shop.sale.checkout import check_out
from shop.sale.on_sale import require_on_sale
from shop.sale.points import installed
from shop.sale.purchase import Attempt, Receipt
from shop.tests.till import APPLE, LOCKED, books, buy, committed, eventually, open_sale

pytestmark = committed


def buyer(name: str, lock: str) -> Callable[[], Receipt]:
    return partial(check_out, Attempt(product=APPLE, buyer=name, lock=lock))


def enter_and_ask_for_the_lock(threads: Interleaving, name: str, call: Callable[[], Any]) -> Actor:
    """A buyer that has sent its command to Redis and has reached no point yet."""
    before = commands()
    actor = threads.enter(name, call)
    eventually(lambda: commands() > before, what=f"{name} asks for the lock")
    return actor


def commands() -> int:
    """How many commands Redis was given, ours to count them aside."""
    stats = locks_client().info("commandstats")
    return sum(stat["calls"] for name, stat in stats.items() if name != "cmdstat_info")


# --- without a lock -----------------------------------------------------------------------------


def test_without_a_lock_two_buyers_who_read_the_last_unit_both_get_it() -> None:
    open_sale(1)
    with Interleaving() as threads:
        a = threads.enter("A", buyer("A", "none")).runs_to("after_read")
        b = threads.enter("B", buyer("B", "none")).runs_to("after_read")
        assert a.finishes().stock_seen == 1
        assert b.finishes().stock_seen == 1
    assert books() == (2, 0), "two orders for one unit, and a stock that looks right"


def test_without_a_lock_the_last_writer_erases_the_others_decrements() -> None:
    """And CHECK (amount >= 0) has nothing to catch: 200 orders would leave 99."""
    open_sale(100)
    with Interleaving() as threads:
        slow = threads.enter("slow", buyer("slow", "none")).runs_to("after_read")
        for number in range(5):
            buy(lock="none", buyer=f"b{number}")
        assert books() == (5, 95)
        slow.finishes()
    assert books() == (6, 99)


# --- under a lock -------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", LOCKED)
def test_under_a_lock_the_second_buyer_waits_and_finds_the_last_unit_sold(lock: str) -> None:
    open_sale(1)
    with Interleaving() as threads:
        a = threads.enter("A", buyer("A", lock)).runs_to("after_read")
        b = enter_and_ask_for_the_lock(threads, "B", buyer("B", lock))
        assert b.is_between_points(), "B is in the critical section together with A"
        assert a.finishes().stock_seen == 1
        with pytest.raises(SoldOut):
            b.finishes()
    assert books() == (1, 0)


@pytest.mark.parametrize("lock", LOCKED)
def test_under_a_lock_nobody_reads_before_the_holder_has_committed(lock: str) -> None:
    open_sale(2)
    with Interleaving() as threads:
        a = threads.enter("A", buyer("A", lock)).runs_to("before_commit")
        b = enter_and_ask_for_the_lock(threads, "B", buyer("B", lock))
        a.runs_to("after_commit")
        assert books() == (1, 1), "A's sale is there for all to see, and A still has the lock"
        assert b.is_between_points()
        a.finishes()
        assert b.finishes().stock_seen == 1
    assert threads.log == [
        *("A acquired", "A after_read", "A before_commit", "A after_commit"),
        *("B acquired", "B after_read", "B before_commit", "B after_commit"),
    ]


# --- what the database is asked, and when -------------------------------------------------------


@contextmanager
def statements() -> Iterator[list[str]]:
    """Every statement and every point that this thread comes by, in order."""
    seen: list[str] = []

    def record(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        seen.append(" ".join(sql.split()))
        return execute(sql, *rest)

    def note(place: str, facts: Mapping[str, object]) -> None:
        if not is_passed(place):
            seen.append(f"-- {place}")

    with connection.execute_wrapper(record), installed(note):
        yield seen


@pytest.mark.parametrize("lock", LOCKED)
def test_no_statement_runs_before_the_lock_is_held(lock: str) -> None:
    """It would pin a pooled connection for as long as the buyer waits, and starve the holder."""
    open_sale(1)
    require_on_sale(APPLE)  # else the first buyer of a process looks, and gives the connection back
    connection.close()
    with statements() as seen:
        assert buy(lock=lock, key="k1").status == 201
    assert seen[0] == "-- acquired", seen


def test_the_first_statement_under_redis_shows_the_fence() -> None:
    open_sale(1)
    require_on_sale(APPLE)
    with statements() as seen:
        buy(lock="redis")
    assert seen[:2] == [
        "-- acquired",
        "UPDATE product SET fence = %s WHERE name = %s AND fence < %s AND sale_id IS NOT NULL "
        "RETURNING id, sale_id, amount",
    ]
