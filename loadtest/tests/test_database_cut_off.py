"""The time until a node can sell after another node was cut off from PostgreSQL.

The node that was cut off has a buyer who holds the lock.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from loadtest.faults.testbed import NODE_SETTINGS, Testbed
from loadtest.stack.client import Shop
from servers.tests.polling import eventually

#: The ttl of each lock, and the longest time for which a watchdog renews a lock.
TTL_SECONDS, MAX_HOLD_SECONDS = 1.0, 2.0
# The load test may not import the shop. So the next two are copies of values in
# shop/ops/postgres.py: the one in TIMEOUTS_MS for idle transactions, and REPLY_TIMEOUT_SECONDS.

#: PostgreSQL ends an idle transaction after this time, and releases its row locks.
IDLE_IN_TRANSACTION_SECONDS = 6.0
#: A node waits for a reply of PostgreSQL for at most this time.
REPLY_TIMEOUT_SECONDS = 9.0
#: How much longer than its bound a purchase may take on a slow machine with two cores.
SLACK_SECONDS = 4.0
#: Strategies whose watchdog renews the lock while its holder waits for the database. If no setting
#: limits this, the holder keeps the lock until REPLY_TIMEOUT_SECONDS have passed.
RENEWED_STRATEGIES = ("redis", "token-watchdog", "reentrant", "fence-at-write")
#: Settings of the nodes with which no holder keeps its lock longer than MAX_HOLD_SECONDS + ttl.
LIMITED_HOLD_SETTINGS = {
    "SHOP_LOCK_TTL": str(TTL_SECONDS),
    "SHOP_LOCK_MAX_HOLD": str(MAX_HOLD_SECONDS),
    "SHOP_LOCK_WAIT": "12",  # more than the longest bound in the test plus SLACK_SECONDS
}


class CutOffCase(NamedTuple):
    """A strategy, and the point in a purchase at which the holder of its lock is stopped.

    Each case has its own product.
    """

    lock: str
    point: str

    @property
    def product(self) -> str:
        return f"{self.lock}-{self.point}"


class CutOffTestbed(Testbed):
    """Two nodes with the defaults of production, except for `settings`.

    A proxy can cut node A off from PostgreSQL. A purchase that is stopped at a point creates a file
    in `records/at`. It continues when the test creates a file of the same name in `records/go`.

    settings  environment variables of the nodes
    """

    settings: dict[str, str]

    def _start_servers(self) -> dict[str, str]:
        """Start the servers. Return the environment of the nodes."""
        environment = super()._start_servers()
        # Remove the settings for faults. Without them, the nodes have the defaults of production.
        for name in NODE_SETTINGS:
            environment.pop(name, None)
        return environment | {"SHOP_DEMO_PAUSES": "", "SHOP_DB_POOL": "6"} | self.settings

    def _make_ttl_settings(self) -> dict[str, str]:
        """Return no settings. The ttl is set by `settings`, or it is the shop's default."""
        return {}


@pytest.fixture
def start_testbed(tmp_path: Path) -> Iterator[Callable[..., CutOffTestbed]]:
    """Yield a function that starts a CutOffTestbed. Its arguments are the settings of the nodes."""
    with ExitStack() as contexts:
        log = contexts.enter_context((tmp_path / "log").open("wb"))

        def start(**settings: str) -> CutOffTestbed:
            # Without the servers that only the strategies `redlock` and `zookeeper` need.
            testbed = CutOffTestbed(log=log, threads=16, extras=False)
            testbed.settings = settings
            testbed.answer_timeout = 60
            return contexts.enter_context(testbed)

        yield start


@pytest.mark.parametrize(
    ("settings", "bounds"),
    [
        (
            LIMITED_HOLD_SETTINGS,
            {
                CutOffCase("redis", "acquired"): MAX_HOLD_SECONDS + TTL_SECONDS,
                # After its read, a purchase under `redis` has also locked the product's row, until
                # PostgreSQL ends its transaction.
                CutOffCase("redis", "after_read"): max(
                    MAX_HOLD_SECONDS + TTL_SECONDS, IDLE_IN_TRANSACTION_SECONDS
                ),
            },
        ),
        ({}, {CutOffCase(lock, "acquired"): REPLY_TIMEOUT_SECONDS for lock in RENEWED_STRATEGIES}),
    ],
)
def test_other_node_sells_soon_after_the_holders_node_is_cut_off(
    start_testbed: Callable[..., CutOffTestbed],
    settings: dict[str, str],
    bounds: dict[CutOffCase, float],
) -> None:
    """Node A is cut off from PostgreSQL while one of its buyers holds the lock.

    A buyer on node B waits for the lock, and must be sold a unit within the bound of the case. No
    unit is sold twice.

    settings  settings that limit how long a holder keeps its lock; empty: there is no limit
    bounds    case -> the longest time from the cut-off to the sale on node B, in seconds
    """
    testbed = start_testbed(**settings)
    node_a, node_b = testbed.shop(0), testbed.shop(1)
    sales = {case: node_a.restock(product=case.product, stock=5)["sale"] for case in bounds}
    file_names = [f"cut-off-{case.product}@{case.point}" for case in bounds]
    with ThreadPoolExecutor(2 * len(bounds)) as pool:
        purchases_on_a = {
            case: pool.submit(buy, node_a, case, "cut-off", stop_at=case.point) for case in bounds
        }
        for name in file_names:
            eventually((testbed.records / "at" / name).exists, what="a buyer on node A is stopped")
        testbed.database_proxy.black_hole()
        cut_off_at = time.monotonic()
        for name in file_names:
            (testbed.records / "go" / name).touch()
        purchases_on_b = {case: pool.submit(buy_and_read_clock, node_b, case) for case in bounds}
        for case, timed_purchase in purchases_on_b.items():
            answer, answered_at = timed_purchase.result(60)
            assert answer == (201, "sold"), case
            seconds = answered_at - cut_off_at
            assert seconds < bounds[case] + SLACK_SECONDS, case
            assert seconds > 1, "node B should have waited for the lock"
        is_hold_limited = bool(settings)
        if is_hold_limited:
            is_any_done = any(purchase.done() for purchase in purchases_on_a.values())
            assert not is_any_done, "node A should still wait for PostgreSQL"
            testbed.database_proxy.pass_on()
        for case, purchase in purchases_on_a.items():
            status, outcome = purchase.result(60)
            assert status == 503, case
            # `busy` is the outcome if node A finally reads that PostgreSQL ended its idle
            # transaction.
            assert outcome in ("unavailable", "lost", "busy"), case
    testbed.database_proxy.pass_on()
    for case, sale in sales.items():
        report = node_b.sale(sale)
        assert (report["orders"], report["stock_left"], report["lost_updates"]) == (1, 4, 0)
        sells_again = partial(buy_successfully, node_a, case, "again")
        eventually(sells_again, what="node A sells again")


def buy(shop: Shop, case: CutOffCase, buyer: str, stop_at: str = "") -> tuple[int, str]:
    """Buy the product of a case under its strategy. Return the status and the outcome.

    stop_at  the point at which the node stops the purchase; empty: it does not stop it
    """
    key = f"{buyer}-{case.product}"
    status, body = shop.buy(
        product=case.product, lock=case.lock, buyer=buyer, key=key, stop_at=stop_at
    )
    return status, body["outcome"]


def buy_and_read_clock(shop: Shop, case: CutOffCase) -> tuple[tuple[int, str], float]:
    """Buy as a second buyer. Return (status, outcome) and the monotonic time of the answer."""
    return buy(shop, case, "next"), time.monotonic()


def buy_successfully(shop: Shop, case: CutOffCase, buyer: str) -> bool:
    """Buy as this buyer, and return whether the answer is `sold`."""
    return buy(shop, case, buyer)[1] == "sold"
