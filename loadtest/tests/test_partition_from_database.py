"""A node is cut off from PostgreSQL while it holds the lock: the other node sells on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from loadtest.stack.client import Shop
from loadtest.stack.stack import Stack
from servers.proxy.proxy import Proxy
from servers.tests.proxied import eventually

TTL, MAX_HOLD, WAIT = 1.0, 2.0, 12.0
#: Seconds after which PostgreSQL ends a transaction that nobody continues, and frees its row
#: (DB_TIMEOUTS_MS in shop/settings.py).
IDLE_IN_TRANSACTION = 6.0
SLACK = 3.0


class CutOff(Stack):
    """Two nodes; a proxy can cut A off from PostgreSQL. Purchases stop at marks in `records`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nodes=2, workers=1, threads=16, record=True, **options)
        for mark in ("at", "go"):
            (self.records / mark).mkdir()

    def _environment(self) -> dict[str, str]:
        environment = super()._environment()
        folder = parse_qs(urlsplit(environment["DATABASE_URL"]).query)["host"][0]
        self.proxy = Proxy(Path(folder) / ".s.PGSQL.5432", folder=Path(self._folder.name))
        self.proxy.start()
        return environment | {
            "SHOP_LOCK_TTL": str(TTL),
            "SHOP_LOCK_MAX_HOLD": str(MAX_HOLD),
            "SHOP_LOCK_WAIT": str(WAIT),
            "SHOP_DEMO_PAUSES": "",
            "SHOP_DB_POOL": "4",
        }

    def _environment_of(self, number: int, environment: dict[str, str]) -> dict[str, str]:
        own = super()._environment_of(number, environment)
        if number == 0:
            whole = own["DATABASE_URL"].partition("?")[0]
            own["DATABASE_URL"] = f"{whole}?host={quote(self.proxy.address, safe='')}"
        return own

    def stop(self) -> None:
        if hasattr(self, "proxy"):
            self.proxy.stop()
        super().stop()


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CutOff]:
    for name in ("DATABASE_URL", "REDIS_URL", "SHOP_DB_POOL"):
        monkeypatch.delenv(name, raising=False)
    with (tmp_path / "log").open("wb") as log, CutOff(log=log) as stack:
        yield stack


@pytest.mark.parametrize(
    ("stop", "bound"),
    [
        ("acquired", MAX_HOLD + TTL),
        # Its claim has the product's row, until PostgreSQL ends the transaction.
        ("after_read", max(MAX_HOLD + TTL, IDLE_IN_TRANSACTION)),
    ],
)
def test_the_other_node_sells_within_the_bound_and_nothing_is_sold_twice(
    stack: CutOff, stop: str, bound: float
) -> None:
    a, b = stack.shop(0), stack.shop(1)
    sale = a.restock(product="apple", stock=5)["sale"]
    with ThreadPoolExecutor(1) as pool:
        cut_off = pool.submit(buy, a, "cut-off", stop)
        eventually((stack.records / "at" / f"cut-off@{stop}").exists, what="A holds the lock")
        stack.proxy.black_hole()
        (stack.records / "go" / f"cut-off@{stop}").touch()
        since = time.monotonic()
        status, body = buy(b, "next")
        took = time.monotonic() - since
        assert (status, body["outcome"]) == (201, "sold"), body
        assert took < bound + SLACK
        assert took > 1, "A held the lock when it was cut off"
        assert not cut_off.done()
        stack.proxy.pass_on()
        status, body = cut_off.result(30)
    assert status == 503, body
    assert body["outcome"] in ("unavailable", "lost"), "nothing was sent but what was dropped"
    report = b.sale(sale)
    assert (report["orders"], report["stock_left"], report["lost_updates"]) == (1, 4, 0)


def buy(shop: Shop, key: str, stop: str = "") -> tuple[int, dict[str, Any]]:
    patient = Shop(shop.url, timeout=40)
    return patient.buy(product="apple", lock="redis", buyer=key, key=key, stop=stop)
