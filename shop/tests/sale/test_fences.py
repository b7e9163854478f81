"""Fences, claimed at the read; and ahead of Redis's clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from locks import RedisLock
from shop.errors import DatabaseFenceAhead, Lost
from shop.models import Product, PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale.checkout import check_out
from shop.sale.fences import raise_fence
from shop.sale.purchase import Attempt
from shop.sale.reports import sale_report
from shop.schedules.interleaving import Actor, Interleaving
from shop.strategies import STRATEGIES
from shop.tests.database import has_waiting_statement
from shop.tests.outage import Outage
from shop.tests.purchases import APPLE, committed, count_orders_and_stock, eventually, open_sale

pytestmark = committed


def the_lock_is_gone() -> None:
    """As after a pause past the ttl: expired, and its holder does not know."""
    assert locks_client().dbsize() > 0, "there is no lock to lose: the fault would not fire"
    locks_client().flushdb()


@contextmanager
def a_stale_holder(*, at: str) -> Iterator[tuple[Actor, Actor, Interleaving]]:
    """The holder is stopped at the point `at` and has lost its lock; the rival has not begun."""
    with Interleaving() as threads:
        stale = threads.enter("stale", partial(check_out, Attempt(APPLE, "stale", "redis")))
        stale.run_to(at)
        the_lock_is_gone()
        rival = threads.enter("rival", partial(check_out, Attempt(APPLE, "rival", "redis")))
        yield stale, rival, threads


def test_fence_claimed_at_the_read_blocks_the_rival() -> None:
    """The rival reads, the stale holder writes, the rival writes: `fence-at-write` lets it through,
    for both fences were higher (fault `pause`). Here the claim holds the row, and what the rival
    then reads is fresh."""
    sale = open_sale(10)
    with a_stale_holder(at="after_read") as (stale, rival, threads):
        rival.run_to("acquired").resume()
        eventually(has_waiting_statement, what="the rival's claim waits for the row")
        assert stale.finish().stock_seen == 10
        assert rival.finish().stock_seen == 9
    assert threads.log.index("stale before_commit") < threads.log.index("rival after_read")
    report = sale_report(sale.pk)
    assert (report.orders, report.stock_left, report.lost_updates) == (2, 8, 0)


def test_stale_holder_is_refused_after_the_rival_wrote() -> None:
    """What it reads is fresh, and its fence is the lower one all the same."""
    open_sale(10)
    with a_stale_holder(at="acquired") as (stale, rival, _):
        rival.finish()
        with pytest.raises(Lost, match="fenced off"):
            stale.finish()
    assert (PurchaseHistory.objects.get().purchaser, count_orders_and_stock()) == ("rival", (1, 9))


# --- what the product's row remembers -----------------------------------------------------------


def test_fences_rise_with_every_order_even_when_redis_forgot_the_last_one() -> None:
    open_sale(4)
    fences = []
    for number in range(4):
        if number == 2:
            the_lock_is_gone()  # and with it the last fence
        check_out(Attempt(APPLE, f"b{number}", "redis"))
        order = PurchaseHistory.objects.latest("pk")
        assert order.fence == Product.objects.get(name=APPLE).fence
        fences.append(order.fence or 0)
    assert fences == sorted(set(fences))


def test_an_equal_fence_is_refused_too_for_it_was_used() -> None:
    open_sale(2)
    with Interleaving() as threads:
        a = threads.enter("A", partial(check_out, Attempt(APPLE, "A", "redis"))).run_to("acquired")
        fence: Any = locks_client().get("lock:{redis:apple}:fence")
        Product.objects.filter(name=APPLE).update(fence=int(fence))
        with pytest.raises(Lost):
            a.finish()
    assert count_orders_and_stock() == (0, 2)


# --- ahead of Redis's clock: the outage has a name, and a way out ---------------------------------


HOUR = 3_600_000_000  # microseconds
AN_HOUR_AHEAD = r"(3600|3599) s ahead .*manage.py raise_fence apple"
FENCED = [name for name, strategy in STRATEGIES.items() if strategy.fenced]


def put_ahead(by: int = HOUR) -> int:
    """Set apple's fence so far ahead of Redis's clock. Returns it."""
    seconds, microseconds = locks_client().time()
    fence = int(seconds) * 1_000_000 + int(microseconds) + by
    Product.objects.filter(name=APPLE).update(fence=fence)
    return fence


def said_by(*arguments: str) -> str:
    out = StringIO()
    call_command("raise_fence", *arguments, stdout=out, no_color=True)
    return out.getvalue()


@pytest.mark.parametrize("lock", FENCED)
def test_nothing_is_sold_until_the_command_has_run_and_then_everything_is(lock: str) -> None:
    open_sale(3)
    ahead = put_ahead()
    for buyer in ("first", "second"):
        with pytest.raises(DatabaseFenceAhead, match=AN_HOUR_AHEAD):
            check_out(Attempt(APPLE, buyer, lock))
    assert count_orders_and_stock() == (0, 3)
    assert said_by(APPLE, "--lock", lock).startswith("apple: the fence of the lock was raised")
    last = RedisLock(locks_client(), f"{lock}:{APPLE}", ttl=1).inspect().fence
    assert "nothing to do" in said_by(APPLE, "--lock", lock), "it may be run twice"
    assert RedisLock(locks_client(), f"{lock}:{APPLE}", ttl=1).inspect().fence == last
    for buyer in ("first", "second", "third"):
        check_out(Attempt(APPLE, buyer, lock))
    assert count_orders_and_stock() == (3, 0)
    fences = [order.fence or 0 for order in PurchaseHistory.objects.order_by("pk")]
    assert fences == sorted({*fences}), "they rise"
    assert fences[0] > ahead, "the database's own was not lowered"


def test_a_holder_of_before_who_wakes_up_after_the_command_sells_nothing() -> None:
    """It acquired on the Redis with the clock that was ahead, a moment before the failover: its
    fence is a little higher than any that the database has seen."""
    open_sale(10)
    ahead = put_ahead()
    locks_client().set(f"lock:{{redis:{APPLE}}}:fence", ahead + 5)
    with Interleaving() as run:
        stale = run.enter("stale", partial(check_out, Attempt(APPLE, "stale", "redis")))
        stale.run_to("acquired")
        locks_client().flushdb()
        raise_fence("redis", Product.objects.get(name=APPLE))
        check_out(Attempt(APPLE, "next", "redis"))
        with pytest.raises(Lost):
            stale.finish()
    assert count_orders_and_stock() == (1, 9)


def test_check_stack_names_the_product_and_the_command_until_it_was_run() -> None:
    open_sale(1)
    put_ahead()
    out = StringIO()
    with pytest.raises(CommandError, match="not ready: fence of apple"):
        call_command("check_stack", stdout=out, no_color=True)
    assert "s ahead of the locks' Redis, so that nothing is sold" in out.getvalue()
    assert "manage.py raise_fence apple" in out.getvalue()
    said_by(APPLE)
    call_command("check_stack", stdout=StringIO())


def test_the_raised_fence_is_remembered_until_the_clock_has_caught_up() -> None:
    """Forgotten earlier, the next fence would be the clock's again."""
    open_sale(1)
    put_ahead(30 * 24 * HOUR)
    raise_fence("redis", Product.objects.get(name=APPLE))
    milliseconds = locks_client().pttl(f"lock:{{redis:{APPLE}}}:fence")
    assert milliseconds > 30 * 24 * 3_600_000


def test_the_command_says_what_it_takes_and_what_it_cannot_do(redis_outage: Outage) -> None:
    open_sale(1)
    put_ahead()

    def is_refused(message: str, *arguments: str) -> None:
        with pytest.raises(CommandError, match=message):
            said_by(*arguments)

    is_refused("there is no product 'nothing': see manage.py sale_report, or the admin", "nothing")
    is_refused("token has no fence: use redis, one-file, fence-at-write", APPLE, "--lock", "token")
    redis_outage.begin()
    is_refused(r"the locks' Redis refused the command .*: run manage.py check_stack", APPLE)
    Product.objects.filter(name=APPLE).update(fence=2**53)  # more than Redis can count
    is_refused(r"stop every node, .* SET fence = 0", APPLE)
