"""Fences: their claim at the read, and a fence that is ahead of Redis's clock."""

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
from shop.schedules.interleaving import Interleaving, StoppingActor
from shop.strategies import STRATEGIES
from shop.tests.database import has_waiting_statement
from shop.tests.outage import Outage
from shop.tests.purchases import APPLE, committed, count_orders_and_stock, eventually, open_sale

pytestmark = committed


def drop_lock() -> None:
    """Delete the lock, as if it had expired while its holder was paused."""
    assert locks_client().dbsize() > 0, "there is no lock: the fault would not fire"
    locks_client().flushdb()


@contextmanager
def stale_holder(*, at: str) -> Iterator[tuple[StoppingActor, StoppingActor, Interleaving]]:
    """Stop a holder at the point `at`, and drop its lock. The rival has not started."""
    with Interleaving() as threads:
        stale = threads.enter("stale", partial(check_out, Attempt(APPLE, "stale", "redis")))
        stale.run_to(at)
        drop_lock()
        rival = threads.enter("rival", partial(check_out, Attempt(APPLE, "rival", "redis")))
        yield stale, rival, threads


def test_fence_claimed_at_the_read_blocks_the_rival() -> None:
    """The rival reads, the stale holder writes, the rival writes: `fence-at-write` accepts both,
    because both fences are higher than the last one (fault `pause`). Here the claim holds the row,
    so that the rival reads the new stock."""
    sale = open_sale(10)
    with stale_holder(at="after_read") as (stale, rival, threads):
        rival.run_to("acquired").resume()
        eventually(has_waiting_statement, what="the rival's claim waits for the row")
        assert stale.finish().stock_seen == 10
        assert rival.finish().stock_seen == 9
    assert threads.log.index("stale before_commit") < threads.log.index("rival after_read")
    report = sale_report(sale.pk)
    assert (report.orders, report.stock_left, report.lost_updates) == (2, 8, 0)


def test_stale_holder_is_refused_after_the_rival_wrote() -> None:
    """It reads the current stock, but its fence is lower."""
    open_sale(10)
    with stale_holder(at="acquired") as (stale, rival, _):
        rival.finish()
        with pytest.raises(Lost, match="fenced off"):
            stale.finish()
    assert (PurchaseHistory.objects.get().purchaser, count_orders_and_stock()) == ("rival", (1, 9))


# --- the fence in the product's row --------------------------------------------------------------


def test_fences_rise_after_redis_lost_the_last_one() -> None:
    open_sale(4)
    fences = []
    for number in range(4):
        if number == 2:
            drop_lock()  # and the last fence
        check_out(Attempt(APPLE, f"b{number}", "redis"))
        order = PurchaseHistory.objects.latest("pk")
        assert order.fence == Product.objects.get(name=APPLE).fence
        fences.append(order.fence or 0)
    assert fences == sorted(set(fences))


def test_equal_fence_is_refused() -> None:
    open_sale(2)
    with Interleaving() as threads:
        a = threads.enter("A", partial(check_out, Attempt(APPLE, "A", "redis"))).run_to("acquired")
        fence: Any = locks_client().get("lock:{redis:apple}:fence")
        Product.objects.filter(name=APPLE).update(fence=int(fence))
        with pytest.raises(Lost):
            a.finish()
    assert count_orders_and_stock() == (0, 2)


# --- a fence ahead of Redis's clock, and the command that ends the outage -------------------------


HOUR_IN_MICROSECONDS = 3_600_000_000
AN_HOUR_AHEAD = r"(3600|3599) s ahead .*manage.py raise_fence apple"
FENCED_STRATEGIES = [name for name, strategy in STRATEGIES.items() if strategy.fenced]


def put_ahead(by: int = HOUR_IN_MICROSECONDS) -> int:
    """Set apple's fence ahead of Redis's clock by these microseconds, and return it."""
    seconds, microseconds = locks_client().time()
    fence = int(seconds) * 1_000_000 + int(microseconds) + by
    Product.objects.filter(name=APPLE).update(fence=fence)
    return fence


def run_raise_fence(*arguments: str) -> str:
    out = StringIO()
    call_command("raise_fence", *arguments, stdout=out, no_color=True)
    return out.getvalue()


@pytest.mark.parametrize("lock", FENCED_STRATEGIES)
def test_raise_fence_ends_the_outage(lock: str) -> None:
    open_sale(3)
    ahead = put_ahead()
    for buyer in ("first", "second"):
        with pytest.raises(DatabaseFenceAhead, match=AN_HOUR_AHEAD):
            check_out(Attempt(APPLE, buyer, lock))
    assert count_orders_and_stock() == (0, 3)
    assert run_raise_fence(APPLE, "--lock", lock).startswith(
        "apple: the fence of the lock was raised"
    )
    last = RedisLock(locks_client(), f"{lock}:{APPLE}", ttl=1).inspect().fence
    assert "nothing to do" in run_raise_fence(APPLE, "--lock", lock), "a second run has no effect"
    assert RedisLock(locks_client(), f"{lock}:{APPLE}", ttl=1).inspect().fence == last
    for buyer in ("first", "second", "third"):
        check_out(Attempt(APPLE, buyer, lock))
    assert count_orders_and_stock() == (3, 0)
    fences = [order.fence or 0 for order in PurchaseHistory.objects.order_by("pk")]
    assert fences == sorted({*fences}), "they rise"
    assert fences[0] > ahead, "the fence in the database was not lowered"


def test_holder_from_before_the_failover_sells_nothing() -> None:
    """It acquired on the Redis whose clock was ahead, just before the failover: its fence is a
    little higher than any in the database."""
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


def test_check_stack_names_the_product_and_the_command() -> None:
    open_sale(1)
    put_ahead()
    out = StringIO()
    with pytest.raises(CommandError, match="not ready: fence of apple"):
        call_command("check_stack", stdout=out, no_color=True)
    assert "s ahead of the locks' Redis, so that nothing is sold" in out.getvalue()
    assert "manage.py raise_fence apple" in out.getvalue()
    run_raise_fence(APPLE)
    call_command("check_stack", stdout=StringIO())


def test_raised_fence_lives_until_the_clock_has_caught_up() -> None:
    """If it expired earlier, the next fence would be taken from the clock."""
    open_sale(1)
    put_ahead(30 * 24 * HOUR_IN_MICROSECONDS)
    raise_fence("redis", Product.objects.get(name=APPLE))
    milliseconds = locks_client().pttl(f"lock:{{redis:{APPLE}}}:fence")
    assert milliseconds > 30 * 24 * 3_600_000


def test_raise_fence_reports_bad_arguments_and_outages(redis_outage: Outage) -> None:
    open_sale(1)
    put_ahead()

    def assert_error(message: str, *arguments: str) -> None:
        with pytest.raises(CommandError, match=message):
            run_raise_fence(*arguments)

    assert_error(
        "there is no product 'nothing': see manage.py sale_report, or the admin", "nothing"
    )
    assert_error(
        "token has no fence: use redis, one-file, fence-at-write", APPLE, "--lock", "token"
    )
    redis_outage.begin()
    assert_error(r"the locks' Redis refused the command .*: run manage.py check_stack", APPLE)
    Product.objects.filter(name=APPLE).update(fence=2**53)  # more than Redis can count
    assert_error(r"stop every node, .* SET fence = 0", APPLE)
