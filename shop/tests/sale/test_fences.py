"""Fences (fencing tokens): the database refuses a purchase that has lost its lock.

Each acquisition of a lock gets a fence, a number that is higher than all earlier ones. A purchase
claims its fence: it writes the fence to the product's row, and is refused if the row has an equal
or higher one. It does so when it reads the stock, and under `fence-at-write` when it writes.

A fence is the time of Redis's clock in microseconds. So fences rise even if Redis has lost all its
data. But if the fence in the row is ahead of that clock, nothing is sold until the clock has passed
the fence, or an operator has set the fence in the row to 0 (the reset).
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from servers.valkey import Valkey
from shop.errors import DatabaseFenceAhead, Lost
from shop.models import Product, PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt
from shop.sale.reports import sale_report
from shop.schedules.interleaving import Interleaving, StoppingActor
from shop.strategies import STRATEGIES
from shop.tests.database import has_waiting_statement
from shop.tests.node import make_node
from shop.tests.purchases import APPLE, committed, count_orders_and_stock, eventually, open_sale

pytestmark = committed


def delete_locks() -> None:
    """Delete all locks and fences in Redis, as if it had restarted without its data."""
    assert locks_client().dbsize() > 0, "there should be a lock to delete"
    locks_client().flushdb()


@contextmanager
def make_stale_holder(*, at: str) -> Iterator[tuple[StoppingActor, StoppingActor, Interleaving]]:
    """Stop a buyer who holds the lock at the point `at` of its purchase, and delete the lock.

    A point is a named place in the code of a purchase (shop/sale/points.py).

    Yields the stale holder, a rival who stops as soon as it has acquired the lock, and the
    Interleaving of both.
    """
    with Interleaving() as threads:
        stale = threads.start("stale", partial(check_out, Attempt(APPLE, "stale", "redis")))
        stale.run_to(at)
        delete_locks()
        rival = threads.start("rival", partial(check_out, Attempt(APPLE, "rival", "redis")))
        yield stale, rival, threads


def test_fence_claimed_at_the_read_blocks_the_rival() -> None:
    """A holder has claimed its fence when its lock is deleted, and a rival acquires the lock.

    The claim, an UPDATE, has locked the product's row. So the rival's claim waits until the stale
    holder has committed, and the rival reads the new stock. No decrement is lost. Without the claim
    at the read, both would read 10.
    """
    sale = open_sale(10)
    with make_stale_holder(at="after_read") as (stale, rival, threads):
        rival.run_to("acquired").resume()
        eventually(has_waiting_statement, what="the rival's claim waits for the row")
        assert stale.finish().stock_seen == 10
        assert rival.finish().stock_seen == 9
    assert threads.log.index("stale before_commit") < threads.log.index("rival after_read")
    report = sale_report(sale.pk)
    assert (report.orders, report.stock_left, report.lost_updates) == (2, 8, 0)


def test_stale_holder_is_refused_after_the_rival_wrote() -> None:
    """A holder loses its lock before it has claimed its fence, and a rival buys.

    The row then has the rival's fence, which is higher, so the stale holder's claim is refused.
    """
    open_sale(10)
    with make_stale_holder(at="acquired") as (stale, rival, _):
        rival.finish()
        with pytest.raises(Lost, match="fenced off"):
            stale.finish()
    assert (PurchaseHistory.objects.get().purchaser, count_orders_and_stock()) == ("rival", (1, 9))


# --- the fence in the product's row --------------------------------------------------------------


def test_fences_rise_after_redis_lost_the_last_one() -> None:
    """Redis loses all its data after the second of four purchases."""
    open_sale(4)
    fences = []
    for number in range(4):
        if number == 2:
            delete_locks()  # this also deletes the last fence
        check_out(Attempt(APPLE, f"b{number}", "redis"))
        order = PurchaseHistory.objects.latest("pk")
        assert order.fence == Product.objects.get(name=APPLE).fence
        fences.append(order.fence or 0)
    assert fences == sorted(set(fences))


def test_equal_fence_is_refused() -> None:
    """The product's row already has the fence of A's lock when A claims it, so A is refused."""
    open_sale(2)
    with Interleaving() as threads:
        a = threads.start("A", partial(check_out, Attempt(APPLE, "A", "redis"))).run_to("acquired")
        fence: Any = locks_client().get("lock:{redis:apple}:fence")
        Product.objects.filter(name=APPLE).update(fence=int(fence))
        with pytest.raises(Lost):
            a.finish()
    assert count_orders_and_stock() == (0, 2)


# --- a fence ahead of Redis's clock, and the remedies in docs/production.md -----------------------


HOUR_IN_MICROSECONDS = 3_600_000_000
REMEDY_LINK = "docs/production.md#the-fence-in-the-database-is-ahead"
#: 3599 if the clock has advanced by up to a second since the test set the fence.
HOUR_AHEAD_ERROR = (
    rf"fence of apple is (3600|3599) s ahead .*while every node is stopped .*{REMEDY_LINK}"
)
FENCED_STRATEGIES = [name for name, strategy in STRATEGIES.items() if strategy.fenced]


def read_documented_section() -> str:
    """Return the section of the documentation to which REMEDY_LINK points."""
    document, _, anchor = REMEDY_LINK.partition("#")
    sections = re.split(r"^#+ ", (settings.BASE_DIR / document).read_text(), flags=re.MULTILINE)
    (section,) = [
        section
        for section in sections
        if section.partition("\n")[0].lower().replace(" ", "-") == anchor
    ]
    return section


def read_documented_reset() -> str:
    """Return the SQL statement that resets a fence, from the section that REMEDY_LINK points to."""
    (statement,) = re.findall(r"```sql\n(.*?)```", read_documented_section(), re.DOTALL)
    return str(statement).strip()


def reset_fence() -> None:
    """Reset the fence with the documented SQL statement. Asserts that it updates one product."""
    with connection.cursor() as cursor:
        cursor.execute(read_documented_reset())
        assert cursor.rowcount == 1


def compute_fence_ahead(client: redis.Redis, by: int) -> int:
    """Return a fence that is `by` microseconds ahead of Redis's clock."""
    seconds, microseconds = client.time()
    return int(seconds) * 1_000_000 + int(microseconds) + by


def set_fence_ahead(by: int = HOUR_IN_MICROSECONDS) -> int:
    """Write a fence `by` microseconds ahead of Redis's clock to apple's row, and return it."""
    fence = compute_fence_ahead(locks_client(), by)
    Product.objects.filter(name=APPLE).update(fence=fence)
    return fence


def test_docs_list_the_steps_of_a_reset_in_order() -> None:
    """Stop every node, reset the fence as the owner of the tables, and start the nodes again."""
    steps = re.findall(r"^  \d\. (.*)", read_documented_section(), re.MULTILINE)
    assert [step.split()[0] for step in steps] == ["Stop", "As", "Start"]
    assert read_documented_reset() == "UPDATE product SET fence = 0 WHERE name = 'apple';"


@pytest.mark.parametrize("lock", FENCED_STRATEGIES)
def test_shop_sells_after_the_fence_is_reset(lock: str) -> None:
    """If the row's fence is an hour ahead of Redis's clock, purchases are refused until a reset."""
    open_sale(3)
    fence_ahead = set_fence_ahead()
    for buyer in ("first", "second"):
        with pytest.raises(DatabaseFenceAhead, match=HOUR_AHEAD_ERROR):
            check_out(Attempt(APPLE, buyer, lock))
    assert count_orders_and_stock() == (0, 3)
    reset_fence()
    for buyer in ("first", "second", "third"):
        check_out(Attempt(APPLE, buyer, lock))
    assert count_orders_and_stock() == (3, 0)
    fences = [order.fence or 0 for order in PurchaseHistory.objects.order_by("pk")]
    assert fences == sorted({*fences}), "the fences should rise"
    assert fences[-1] < fence_ahead


@pytest.mark.parametrize("lock", ["redis", "one-file"])
def test_stopped_node_sells_after_the_reset(lock: str, folder: Path, valkey: Valkey) -> None:
    """A node sells again after the documented steps: stop the node, reset the fence, start it."""
    body = json.dumps({"lock": lock, "buyer": "ada"}).encode()
    node = make_node(folder / "ahead.log", valkey=valkey)
    with (
        redis.Redis(port=valkey.port, db=1) as client,
        psycopg.connect(node.environment["DATABASE_URL"], autocommit=True) as operator,
    ):
        with node:
            sale = node.restock(3, lock)
            assert node.request_json("POST", "/buy", body)[0] == 201
            client.flushall()  # deletes the last fence, as a restart without data would
            fence_ahead = compute_fence_ahead(client, HOUR_IN_MICROSECONDS)
            operator.execute("UPDATE product SET fence = %s", [fence_ahead])
            status, reply = node.request_json("POST", "/buy", body)
            assert (status, reply["outcome"]) == (503, "lost")
            assert re.search(HOUR_AHEAD_ERROR, reply["error"])
        operator.execute(read_documented_reset())
        with node:
            assert node.request_json("POST", "/buy", body)[0] == 201
            report = node.get(f"/sales/{sale}")[1]
    assert (report["orders"], report["stock_left"], report["lost_updates"]) == (2, 1, 0)


def reset_during_a_purchase(lock: str, *, at: str) -> None:
    """Reset the fence in the row to 0 while a purchase is stopped at the point `at` in its code.

    Then a second buyer buys, with a fence of the present time. After that the stopped purchase
    continues, without its lock. Its fence is an hour ahead, like the row's fence before the reset.
    """
    fence_ahead = set_fence_ahead()
    # Set the last fence in Redis. The lock of `stale` then gets a higher fence than the row has.
    locks_client().set(f"lock:{{{lock}:{APPLE}}}:fence", fence_ahead + 5)
    with Interleaving() as threads:
        stale = threads.start("stale", partial(check_out, Attempt(APPLE, "stale", lock)))
        stale.run_to(at)
        delete_locks()
        reset_fence()
        check_out(Attempt(APPLE, "second", lock))
        stale.finish()


def test_reset_during_a_purchase_refuses_later_buyers() -> None:
    """A purchase that began before the reset writes its fence, an hour ahead of Redis's clock.

    Then all later buyers are refused again. For this reason the documentation says to stop every
    node before the reset.
    """
    open_sale(10)
    reset_during_a_purchase("redis", at="acquired")
    assert count_orders_and_stock() == (2, 8)
    with pytest.raises(DatabaseFenceAhead):
        check_out(Attempt(APPLE, "third", "redis"))


def test_reset_before_the_claim_allows_a_stale_write() -> None:
    """A buyer under `fence-at-write` reads the stock before the reset, and writes after it.

    Its fence is higher than the fence in the row, so the write is accepted, and one decrement is
    lost. For this reason, too, every node must be stopped before the reset.
    """
    open_sale(10)
    reset_during_a_purchase("fence-at-write", at="after_read")
    assert count_orders_and_stock() == (2, 9)  # the second write of the stock replaced the first


def test_fence_slightly_ahead_needs_no_reset() -> None:
    """The row's fence is 2 s ahead of Redis's clock, so purchases are refused for about 2 s."""
    open_sale(1)
    set_fence_ahead(2_000_000)
    with pytest.raises(Lost):
        check_out(Attempt(APPLE, "early", "redis"))

    def try_to_buy() -> bool:
        try:
            check_out(Attempt(APPLE, "patient", "redis"))
        except Lost:
            return False
        return True

    eventually(try_to_buy, what="Redis's clock has passed the fence", timeout=20)
    assert count_orders_and_stock() == (1, 0)


def test_check_stack_fails_if_a_fence_is_ahead() -> None:
    """The error of `manage.py check_stack` contains the product and the remedy."""
    open_sale(1)
    set_fence_ahead()
    out = StringIO()
    with pytest.raises(CommandError, match="not ready: fence of apple"):
        call_command("check_stack", stdout=out, no_color=True)
    assert "s ahead of the locks' Redis, so nothing is sold: correct its clock" in out.getvalue()
    assert REMEDY_LINK in out.getvalue()
    reset_fence()
    call_command("check_stack", stdout=StringIO())
