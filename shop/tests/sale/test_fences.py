"""Fences: claimed at the read, or checked at the write only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from shop.demo.interleaving import Actor, Interleaving
from shop.errors import Lost
from shop.models import Product, PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt
from shop.sale.reports import sale_report
from shop.tests.database import somebody_waits_for_a_row
from shop.tests.till import APPLE, books, committed, eventually, open_sale

pytestmark = committed

FENCED = pytest.mark.parametrize("lock", ["redis", "fence-at-write"])


def the_lock_is_gone() -> None:
    """As after a pause past the ttl: expired, and its holder does not know."""
    assert locks_client().dbsize() > 0, "there is no lock to lose: the fault would not fire"
    locks_client().flushdb()


@contextmanager
def a_stale_holder(lock: str, *, at: str) -> Iterator[tuple[Actor, Actor, Interleaving]]:
    """The holder is stopped at the point `at` and has lost its lock; the rival has not begun."""
    with Interleaving() as threads:
        stale = threads.enter("stale", partial(check_out, Attempt(APPLE, "stale", lock)))
        stale.runs_to(at)
        the_lock_is_gone()
        rival = threads.enter("rival", partial(check_out, Attempt(APPLE, "rival", lock)))
        yield stale, rival, threads


def buyers() -> list[str]:
    return [order.purchaser for order in PurchaseHistory.objects.order_by("pk")]


# --- no fence, and the one schedule that a fence at the write lets through ----------------------


def test_where_only_the_lock_is_trusted_a_holder_that_lost_it_oversells() -> None:
    sale = open_sale(1)
    with a_stale_holder("token", at="after_read") as (stale, rival, _):
        assert rival.finishes().stock_seen == 1
        assert stale.finishes().lock["released"] == "expired"
    assert sale_report(sale.pk).oversold == 1


def test_checked_at_the_write_a_stale_read_still_erases_an_update() -> None:
    """The rival reads, the stale holder writes, the rival writes: both fences were higher."""
    sale = open_sale(10)
    with a_stale_holder("fence-at-write", at="after_read") as (stale, rival, _):
        rival.runs_to("after_read")
        assert stale.finishes().stock_seen == 10
        assert rival.finishes().stock_seen == 10
    report = sale_report(sale.pk)
    assert (report.orders, report.stock_left, report.lost_updates) == (2, 9, 1)


def test_claimed_at_the_read_the_rival_cannot_even_read_before_the_stale_holder_has_written() -> (
    None
):
    """The same schedule: the claim holds the row, and what the rival then reads is fresh."""
    sale = open_sale(10)
    with a_stale_holder("redis", at="after_read") as (stale, rival, threads):
        rival.runs_to("acquired").starts()
        eventually(somebody_waits_for_a_row, what="the rival's claim waits for the row")
        assert stale.finishes().stock_seen == 10
        assert rival.finishes().stock_seen == 9
    assert threads.log.index("stale before_commit") < threads.log.index("rival after_read")
    report = sale_report(sale.pk)
    assert (report.orders, report.stock_left, report.lost_updates) == (2, 8, 0)


# --- the schedules that both refuse -------------------------------------------------------------


def test_checked_at_the_write_a_stale_write_after_the_rivals_is_refused() -> None:
    """The rival reads, the rival writes, the stale holder writes."""
    open_sale(10)
    with a_stale_holder("fence-at-write", at="after_read") as (stale, rival, _):
        rival.finishes()
        with pytest.raises(Lost, match="fenced off"):
            stale.finishes()
    assert (buyers(), books()) == (["rival"], (1, 9))


@FENCED
def test_a_holder_that_lost_its_lock_before_it_read_is_refused_once_the_rival_has_written(
    lock: str,
) -> None:
    """What it reads is fresh, and its fence is the lower one all the same."""
    open_sale(10)
    with a_stale_holder(lock, at="acquired") as (stale, rival, _):
        rival.finishes()
        with pytest.raises(Lost, match="fenced off"):
            stale.finishes()
    assert (buyers(), books()) == (["rival"], (1, 9))


# --- what the product's row remembers -----------------------------------------------------------


@FENCED
def test_fences_rise_with_every_order_even_when_redis_forgot_the_last_one(lock: str) -> None:
    open_sale(4)
    fences = []
    for number in range(4):
        if number == 2:
            the_lock_is_gone()  # and with it the last fence
        check_out(Attempt(APPLE, f"b{number}", lock))
        order = PurchaseHistory.objects.latest("pk")
        assert order.fence == Product.objects.get(name=APPLE).fence
        fences.append(order.fence or 0)
    assert fences == sorted(set(fences))


@FENCED
def test_an_equal_fence_is_refused_too_for_it_was_used(lock: str) -> None:
    open_sale(2)
    with Interleaving() as threads:
        a = threads.enter("A", partial(check_out, Attempt(APPLE, "A", lock))).runs_to("acquired")
        (fence,) = [int(v) for v in fences_in_redis()]
        Product.objects.filter(name=APPLE).update(fence=fence)
        with pytest.raises(Lost):
            a.finishes()
    assert books() == (0, 2)


def fences_in_redis() -> list[bytes]:
    client = locks_client()
    return [client.get(key) for key in client.scan_iter("*:fence")]  # type: ignore[misc]
