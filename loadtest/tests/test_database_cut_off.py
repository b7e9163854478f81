"""A node is cut off from PostgreSQL while it holds the lock: the time without a sale."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadtest.faults.testbed import NODE_SETTINGS, Testbed
from loadtest.stack.client import Shop
from servers.tests.polling import eventually

TTL, MAX_HOLD = 1.0, 2.0
#: Seconds after which PostgreSQL ends an idle transaction, and frees its row
#: (DB_TIMEOUTS_MS in shop/settings.py).
IDLE_IN_TRANSACTION = 6.0
#: REPLY_TIMEOUT of shop/ops/postgres.py, which docs/production.md states as the bound.
REPLY_TIMEOUT = 9.0
#: For two slow cores.
SLACK = 4.0
#: Their watchdogs renew for a holder that only waits: without `max_hold` nothing but the database's
#: client ends it.
RENEWED = ("redis", "token-watchdog", "reentrant", "fence-at-write")
LIMITED = {"SHOP_LOCK_TTL": str(TTL), "SHOP_LOCK_MAX_HOLD": str(MAX_HOLD), "SHOP_LOCK_WAIT": "12"}


class CutOff(Testbed):
    """Two nodes with the settings of a shop, except for the given ones.

    A proxy can cut A off from PostgreSQL. Purchases stop at marks in `records`.
    """

    settings: dict[str, str]

    def _start_servers(self) -> dict[str, str]:
        environment = super()._start_servers()
        plain = {name: value for name, value in environment.items() if name not in NODE_SETTINGS}
        return plain | {"SHOP_DEMO_PAUSES": "", "SHOP_DB_POOL": "6"} | self.settings

    def _ttl_settings(self) -> dict[str, str]:
        return {}


@pytest.fixture
def cut_off(tmp_path: Path) -> Iterator[Callable[..., CutOff]]:
    """Start a stack with each of these settings."""
    with ExitStack() as opened:
        log = opened.enter_context((tmp_path / "log").open("wb"))

        def start(**settings: str) -> CutOff:
            stack = CutOff(log=log, threads=16, extras=False)
            stack.settings, stack.answer_timeout = settings, 60
            return opened.enter_context(stack)

        yield start


@pytest.mark.parametrize(
    ("settings", "bounds"),
    [
        # A claim has the product's row, until PostgreSQL ends the transaction.
        (
            LIMITED,
            {
                ("redis", "acquired"): MAX_HOLD + TTL,
                ("redis", "after_read"): max(MAX_HOLD + TTL, IDLE_IN_TRANSACTION),
            },
        ),
        ({}, dict.fromkeys([(lock, "acquired") for lock in RENEWED], REPLY_TIMEOUT)),
    ],
)
def test_other_node_sells_within_the_bound_and_nothing_is_sold_twice(
    cut_off: Callable[..., CutOff], settings: dict[str, str], bounds: dict[tuple[str, str], float]
) -> None:
    """A holds each lock, is stopped at the given point, and is cut off there."""
    stack = cut_off(**settings)
    a, b = stack.shop(0), stack.shop(1)
    sales = {case: a.restock(product="-".join(case), stock=5)["sale"] for case in bounds}
    marks = {(lock, stop): f"cut-off-{lock}-{stop}@{stop}" for lock, stop in bounds}
    with ThreadPoolExecutor(2 * len(bounds)) as pool:
        holders = {case: pool.submit(buy, a, case, "cut-off", case[1]) for case in bounds}
        for mark in marks.values():
            eventually((stack.records / "at" / mark).exists, what="A holds the lock")
        stack.database_proxy.black_hole()
        since = time.monotonic()
        for mark in marks.values():
            (stack.records / "go" / mark).touch()
        purchases_on_b = {case: pool.submit(buy_at, b, case) for case in bounds}
        for case, other in purchases_on_b.items():
            answer, at = other.result(60)
            assert answer == (201, "sold"), case
            assert at - since < bounds[case] + SLACK, case
            assert at - since > 1, "A held the lock when it was cut off"
        if settings:
            assert not any(holder.done() for holder in holders.values())
            stack.database_proxy.pass_on()
        for case, holder in holders.items():
            # busy: PostgreSQL's last message, idle for too long in a transaction, came through
            status, outcome = holder.result(60)
            assert (status, outcome in ("unavailable", "lost", "busy")) == (503, True), case
    stack.database_proxy.pass_on()
    for case, sale in sales.items():
        report = b.sale(sale)
        assert (report["orders"], report["stock_left"], report["lost_updates"]) == (1, 4, 0)
        eventually(lambda case=case: buy(a, case, "again")[1] == "sold", what="node A sells again")  # type: ignore[misc]


def buy(shop: Shop, case: tuple[str, str], buyer: str, point: str = "") -> tuple[int, str]:
    """Buy the product of this lock and point, and return status and outcome."""
    product = "-".join(case)
    status, body = shop.buy(
        product=product, lock=case[0], buyer=buyer, key=f"{buyer}-{product}", stop_at=point
    )
    return status, body["outcome"]


def buy_at(shop: Shop, case: tuple[str, str]) -> tuple[tuple[int, str], float]:
    """Buy like buy(), and return the time of the answer as well."""
    return buy(shop, case, "next"), time.monotonic()
