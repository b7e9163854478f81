"""The database's fence is ahead of Redis's clock: the outage has a name, and a way out."""

from __future__ import annotations

from functools import partial
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from locks import RedisLock
from shop.demo.interleaving import Interleaving
from shop.errors import FenceAhead, Lost, SaleClosed
from shop.models import Product, PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale.checkout import check_out
from shop.sale.fences import raise_fence
from shop.sale.purchase import Attempt
from shop.strategies import STRATEGIES
from shop.tests.outage import Outage
from shop.tests.till import APPLE, books, committed, open_sale

pytestmark = committed

HOUR = 3_600_000_000  # microseconds
AN_HOUR_AHEAD = r"(3600|3599) s ahead .*manage.py raise_fence apple"
FENCED = [name for name, strategy in STRATEGIES.items() if strategy.fenced]


def put_ahead(by: int = HOUR) -> int:
    """Set apple's fence so far ahead of Redis's clock. Returns it."""
    seconds, microseconds = locks_client().time()
    fence = int(seconds) * 1_000_000 + int(microseconds) + by
    Product.objects.filter(name=APPLE).update(fence=fence)
    return fence


def fence_of_apple() -> int:
    return Product.objects.get(name=APPLE).fence


def said_by(*arguments: str) -> str:
    out = StringIO()
    call_command("raise_fence", *arguments, stdout=out, no_color=True)
    return out.getvalue()


@pytest.mark.parametrize("lock", FENCED)
def test_nothing_is_sold_until_the_command_has_run_and_then_everything_is(lock: str) -> None:
    open_sale(3)
    ahead = put_ahead()
    for buyer in ("first", "second"):
        with pytest.raises(FenceAhead, match=AN_HOUR_AHEAD):
            check_out(Attempt(APPLE, buyer, lock))
    assert books() == (0, 3)
    assert said_by(APPLE, "--lock", lock).startswith("apple: the fence of the lock was raised")
    assert "nothing to do" in said_by(APPLE, "--lock", lock), "it may be run twice"
    for buyer in ("first", "second", "third"):
        check_out(Attempt(APPLE, buyer, lock))
    assert books() == (3, 0)
    fences = [order.fence or 0 for order in PurchaseHistory.objects.order_by("pk")]
    assert fences == sorted({*fences}), "they rise"
    assert fences[0] > ahead, "the database's own was not lowered"


def test_a_stale_holder_is_not_called_an_outage() -> None:
    """Its rival came later, by no more than the time that the stale holder was away."""
    open_sale(10)
    with Interleaving() as run:
        stale = run.enter("stale", partial(check_out, Attempt(APPLE, "stale", "redis")))
        stale.runs_to("acquired")
        locks_client().flushdb()
        rival = run.enter("rival", partial(check_out, Attempt(APPLE, "rival", "redis")))
        rival.finishes()
        with pytest.raises(Lost, match="fenced off") as refusal:
            stale.finishes()
    assert refusal.type is Lost


def test_a_holder_of_before_who_wakes_up_after_the_command_sells_nothing() -> None:
    """It acquired on the Redis with the clock that was ahead, a moment before the failover: its
    fence is a little higher than any that the database has seen."""
    open_sale(10)
    ahead = put_ahead()
    locks_client().set(f"lock:{{redis:{APPLE}}}:fence", ahead + 5)
    with Interleaving() as run:
        stale = run.enter("stale", partial(check_out, Attempt(APPLE, "stale", "redis")))
        stale.runs_to("acquired")
        locks_client().flushdb()
        raise_fence("redis", Product.objects.get(name=APPLE))
        check_out(Attempt(APPLE, "next", "redis"))
        with pytest.raises(Lost):
            stale.finishes()
    assert books() == (1, 9)


def test_the_command_changes_nothing_where_the_fence_is_not_ahead() -> None:
    open_sale(1)
    check_out(Attempt(APPLE, "somebody", "redis"))
    before = RedisLock(locks_client(), f"redis:{APPLE}", ttl=1).inspect().fence
    assert said_by(APPLE) == (
        f"apple: nothing to do, the next fence is above the database's ({fence_of_apple()})\n"
    )
    assert RedisLock(locks_client(), f"redis:{APPLE}", ttl=1).inspect().fence == before


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


def test_a_closed_sale_is_not_called_a_newer_holder() -> None:
    """fence-at-write: the write finds another sale, and a fence that is lower than its own."""
    open_sale(2)
    with Interleaving() as run:
        buyer = run.enter("buyer", partial(check_out, Attempt(APPLE, "buyer", "fence-at-write")))
        buyer.runs_to("after_read")
        open_sale(3)
        with pytest.raises(SaleClosed):
            buyer.finishes()


def test_the_raised_fence_is_remembered_until_the_clock_has_caught_up() -> None:
    """Forgotten earlier, the next fence would be the clock's again."""
    open_sale(1)
    put_ahead(30 * 24 * HOUR)
    raise_fence("redis", Product.objects.get(name=APPLE))
    milliseconds = locks_client().pttl(f"lock:{{redis:{APPLE}}}:fence")
    assert milliseconds > 30 * 24 * 3_600_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "there is no product 'nothing': see manage.py sale_report, or the admin"),
        ([APPLE, "--lock", "token"], "token has no fence: use redis, one-file, fence-at-write"),
    ],
)
def test_the_command_says_what_it_takes(arguments: list[str], message: str) -> None:
    open_sale(1)
    with pytest.raises(CommandError) as error:
        said_by(*arguments)
    assert str(error.value) == message


def test_a_fence_beyond_what_redis_can_count_is_refused_with_the_other_way_out() -> None:
    open_sale(1)
    Product.objects.filter(name=APPLE).update(fence=2**53)
    with pytest.raises(CommandError, match=r"stop every node, .* SET fence = 0"):
        said_by(APPLE)


def test_without_redis_the_command_says_so(redis_outage: Outage) -> None:
    open_sale(1)
    put_ahead()
    redis_outage.begin()
    with pytest.raises(CommandError, match=r"the locks' Redis does not .*: manage.py check_stack"):
        said_by(APPLE)
