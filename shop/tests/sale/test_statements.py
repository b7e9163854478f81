"""Queries of a purchase: a product is looked for once, and nothing is kept for it; then none before
the lock, and as few as can be. Where nobody waits, processor time bounds the rate, and each
statement takes some of it."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.db.models.sql.compiler import SQLCompiler
from django.test import Client
from django.test.utils import CaptureQueriesContext

from shop.sale import known_products
from shop.sale.known_products import require_on_sale
from shop.sale.points import installed
from shop.schedules.interleaving import is_passed
from shop.tests.purchases import APPLE, LOCK_STRATEGIES, buy, committed, open_sale, parse_reply

pytestmark = committed


def test_a_product_is_looked_for_once_and_not_again_while_it_is_on_sale() -> None:
    """A query before the lock would keep a pooled connection for as long as the buyer waits."""
    assert buy(product="asked-once").status == 404
    open_sale(10, product="asked-once")
    assert buy(product="asked-once").status == 201, "a refusal is not remembered"
    with CaptureQueriesContext(connection) as asked:
        assert buy(product="asked-once").status == 201
    of_products = [query["sql"] for query in asked if "product" in query["sql"]]
    assert of_products[0].strip().startswith("UPDATE product SET fence")


def test_the_connection_is_given_back_before_the_wait_for_the_lock() -> None:
    open_sale(1, product="given-back")
    known_products.require_on_sale("given-back")
    assert connection.connection is None


def test_rush_for_an_unknown_product_queries_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_sale(50, product="new-here")
    asked: list[str] = []
    look = known_products._is_on_sale

    def count(product: str) -> bool:
        asked.append(product)
        return look(product)

    monkeypatch.setattr(known_products, "_is_on_sale", count)
    start = threading.Barrier(10)

    def one(number: int) -> int:
        start.wait(10)
        body = {"buyer": f"b{number}", "product": "new-here", "lock": "row-lock"}
        try:
            return parse_reply(Client().post("/buy", body)).status
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as buyers:
        assert set(buyers.map(one, range(10))) == {201}
    assert asked == ["new-here"]


# --- and no statement that a sale can do without --------------------------------------------------


def statements(lock: str, buyer: str) -> list[str]:
    """The verbs of what one purchase asks PostgreSQL, the transaction's own left out."""
    with CaptureQueriesContext(connection) as asked:
        assert buy(lock=lock, buyer=buyer).status == 201
    verbs = [query["sql"].split()[0] for query in asked]
    return [verb for verb in verbs if verb not in ("BEGIN", "COMMIT")]


@pytest.mark.parametrize("lock", LOCK_STRATEGIES)
def test_no_statement_runs_before_the_lock(
    lock: str,
) -> None:
    """It would pin a pooled connection for as long as the buyer waits, and starve the holder."""
    seen: list[str] = []

    def record(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        seen.append(" ".join(sql.split()))
        return execute(sql, *rest)

    def note(place: str, facts: Mapping[str, object]) -> None:
        if not is_passed(place):
            seen.append(f"-- {place}")

    open_sale(1)
    require_on_sale(APPLE)  # else the first buyer of a process looks, and gives the connection back
    connection.close()
    with connection.execute_wrapper(record), installed(note):
        assert buy(lock=lock, key="k1").status == 201
    assert seen[0] == "-- acquired", seen
    fenced = [sql.startswith("UPDATE product SET fence = %s WHERE name = %s AND") for sql in seen]
    assert fenced[1] == (lock == "redis"), seen


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("row-lock", ["SELECT", "UPDATE", "INSERT"]),
        ("redis", ["UPDATE", "UPDATE", "INSERT"]),
        ("buckets", ["SELECT", "UPDATE", "INSERT"]),
        ("skip-locked", ["SELECT", "DELETE", "INSERT"]),
    ],
)
def test_a_sale_takes_three_statements_check_decrement_record(lock: str, wanted: list[str]) -> None:
    open_sale(20, lock=lock)
    assert buy(lock=lock, buyer="the first one here").status == 201
    assert statements(lock, "bob") == wanted


@pytest.mark.parametrize("lock", ["buckets", "skip-locked", "redis"])
def test_a_buyer_who_finds_a_unit_or_none_runs_no_query_of_the_orm(
    lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To build three queries took as much processor time as all the rest of a purchase."""
    open_sale(1 if lock == "redis" else 20, lock=lock)
    assert buy(lock=lock, buyer="the first one here").status == 201
    monkeypatch.delattr(SQLCompiler, "execute_sql")
    answer = buy(lock=lock, buyer="bob", key="a-key-that-has-not-bought")
    assert answer.status == (409 if lock == "redis" else 201)
