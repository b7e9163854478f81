"""The page while the buyers of a rush have every connection of the process's pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from shop.tests.rushes import Rushes
from shop.tests.till import buy, open_sale


@pytest.fixture
def pooled(transactional_db: None) -> Iterator[Any]:
    """This thread's connections come from a pool of two, as in a node of `make serve`."""
    alone = connections["default"]
    pooled: Any = alone.copy()
    pooled.settings_dict["OPTIONS"]["pool"] = {"min_size": 2, "max_size": 2, "timeout": 1}
    pooled.pool.open(wait=True)
    connections["default"] = pooled
    yield pooled
    connections["default"] = alone
    pooled.close()
    pooled.close_pool()


@contextmanager
def buyers_have_it_all(pooled: Any) -> Iterator[None]:
    pooled.close()
    taken = [pooled.pool.getconn() for _ in range(2)]
    yield
    now: Any = connections["default"]
    assert now is pooled, "this thread's next request is one of the pool again"
    for one in taken:
        pooled.pool.putconn(one)


def test_the_page_shows_the_sale_and_stops_it_while_the_buyers_have_every_connection(
    pooled: Any, rushes: Rushes
) -> None:
    sale = open_sale(10)
    rushes.begin()
    with buyers_have_it_all(pooled):
        answer = Client().get("/state")
        assert (answer.status_code, answer.json()["sale"]["sale"]) == (200, sale.pk)
        for path in ("/history", f"/sales/{sale.pk}/curve"):
            assert Client().get(path).status_code == 200
        assert buy(lock="none").body["outcome"] == "unavailable", "buyers wait for the pool"
        assert Client().post("/rush/stop").status_code == 202
    assert rushes.is_to_stop
    sale.refresh_from_db()
    assert sale.closed_at is not None
