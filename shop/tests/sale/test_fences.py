"""Fences: numbers by which the product's row refuses a purchase that has lost its lock.

Each purchase writes its fence into the row when it reads the stock (`fence-at-write`: when it
writes), and is refused unless the fence is larger than the last one there. Redis makes fences from
its clock, so that they rise even if Redis has lost the last one. If the fence in the row is ahead
of that clock, nothing is sold until the clock has passed the fence, or an operator has reset it.
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
    """Delete all locks and fences in Redis, as if the lease of a paused holder had expired."""
    assert locks_client().dbsize() > 0, "there should be a lock to delete"
    locks_client().flushdb()


@contextmanager
def stale_holder(*, at: str) -> Iterator[tuple[StoppingActor, StoppingActor, Interleaving]]:
    """Stop the holder of a lock at the point `at`, and delete its lock.

    Yields the holder, a rival that has not started, and the run in which both are threads.
    """
    with Interleaving() as threads:
        stale = threads.start("stale", partial(check_out, Attempt(APPLE, "stale", "redis")))
        stale.run_to(at)
        delete_locks()
        rival = threads.start("rival", partial(check_out, Attempt(APPLE, "rival", "redis")))
        yield stale, rival, threads


def test_fence_claimed_at_the_read_blocks_the_rival() -> None:
    """The claim locks the product's row, so that the rival reads the new stock.

    Without the claim, the rival reads, the stale holder writes, and then the rival writes. The
    strategy `fence-at-write` accepts both writes, because each fence is higher than the last one.
    """
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
    """The stale holder reads the current stock, but its fence is lower than that of the row."""
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
            delete_locks()  # this deletes the last fence, too
        check_out(Attempt(APPLE, f"b{number}", "redis"))
        order = PurchaseHistory.objects.latest("pk")
        assert order.fence == Product.objects.get(name=APPLE).fence
        fences.append(order.fence or 0)
    assert fences == sorted(set(fences))


def test_equal_fence_is_refused() -> None:
    """The row gets the same fence as A's lock before A reads, and A needs a higher fence."""
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
    """Return the SQL statement with which the documentation resets the fence in the database."""
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
    """Set apple's fence `by` microseconds ahead of Redis's clock, and return the fence."""
    fence = compute_fence_ahead(locks_client(), by)
    Product.objects.filter(name=APPLE).update(fence=fence)
    return fence


def test_docs_list_the_steps_of_a_reset_in_order() -> None:
    """The steps are to stop the nodes, to reset the fence as the tables' owner, and to restart."""
    steps = re.findall(r"^  \d\. (.*)", read_documented_section(), re.MULTILINE)
    assert [step.split()[0] for step in steps] == ["Stop", "As", "Start"]
    assert read_documented_reset() == "UPDATE product SET fence = 0 WHERE name = 'apple';"


@pytest.mark.parametrize("lock", FENCED_STRATEGIES)
def test_shop_sells_after_the_fence_is_reset(lock: str) -> None:
    """A fence an hour ahead of Redis refuses every purchase until the fence is reset."""
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
    """A real node sells again after the documented steps: stop it, set the fence to 0, start it."""
    body = json.dumps({"lock": lock, "buyer": "ada"}).encode()
    node = make_node(folder / "ahead.log", valkey=valkey)
    with (
        redis.Redis(port=valkey.port, db=1) as client,
        psycopg.connect(node.environment["DATABASE_URL"], autocommit=True) as operator,
    ):
        with node:
            sale = node.restock(3, lock)
            assert node.request_json("POST", "/buy", body)[0] == 201
            client.flushall()  # Redis has lost the last fence, as after a restart
            fence_ahead = compute_fence_ahead(client, HOUR_IN_MICROSECONDS)
            operator.execute("UPDATE product SET fence = %s", [fence_ahead])
            status, answer = node.request_json("POST", "/buy", body)
            assert (status, answer["outcome"]) == (503, "lost")
            assert re.search(HOUR_AHEAD_ERROR, answer["error"])
        operator.execute(read_documented_reset())
        with node:
            assert node.request_json("POST", "/buy", body)[0] == 201
            report = node.get(f"/sales/{sale}")[1]
    assert (report["orders"], report["stock_left"], report["lost_updates"]) == (2, 1, 0)


def reset_during_a_purchase(lock: str, *, at: str) -> None:
    """Reset the fence while a purchase is stopped at the point `at`.

    A second buyer buys, and then the stopped purchase continues. Its fence is even higher than
    the one before the reset.
    """
    fence_ahead = set_fence_ahead()
    # The next lock gets a fence above this one.
    locks_client().set(f"lock:{{{lock}:{APPLE}}}:fence", fence_ahead + 5)
    with Interleaving() as run:
        stale = run.start("stale", partial(check_out, Attempt(APPLE, "stale", lock)))
        stale.run_to(at)
        delete_locks()
        reset_fence()
        check_out(Attempt(APPLE, "second", lock))
        stale.finish()


def test_reset_during_a_purchase_refuses_later_buyers() -> None:
    """After the reset the holder writes a fence that is still far ahead into the row.

    For this reason the documented steps stop every node before the reset.
    """
    open_sale(10)
    reset_during_a_purchase("redis", at="acquired")
    assert count_orders_and_stock() == (2, 8)
    with pytest.raises(DatabaseFenceAhead):
        check_out(Attempt(APPLE, "third", "redis"))


def test_reset_before_the_claim_allows_a_stale_write() -> None:
    """A holder under `fence-at-write` reads the stock before the reset, and claims its fence later.

    The claim is accepted, so the holder writes back an outdated stock.
    """
    open_sale(10)
    reset_during_a_purchase("fence-at-write", at="after_read")
    assert count_orders_and_stock() == (2, 9)  # the second write of the stock replaced the first


def test_fence_slightly_ahead_needs_no_reset() -> None:
    """The fence is 2 s ahead. Purchases are refused only until Redis's clock has passed it."""
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


def test_check_stack_names_the_product_and_the_remedy() -> None:
    """The fence of `apple` is an hour ahead of Redis's clock, so check_stack fails."""
    open_sale(1)
    set_fence_ahead()
    out = StringIO()
    with pytest.raises(CommandError, match="not ready: fence of apple"):
        call_command("check_stack", stdout=out, no_color=True)
    assert "s ahead of the locks' Redis, so nothing is sold: correct its clock" in out.getvalue()
    assert REMEDY_LINK in out.getvalue()
    reset_fence()
    call_command("check_stack", stdout=StringIO())
