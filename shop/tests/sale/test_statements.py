"""The SQL statements of a purchase: none before the lock, and few while the lock is held.

Before the lock, a statement would occupy a pooled connection while the buyer waits. Under the lock,
each statement takes processor time, which limits the sales per second.
"""

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
from shop.sale.known_products import require_existing_product
from shop.sale.points import use_probe
from shop.schedules.interleaving import is_skipped
from shop.tests.purchases import (
    APPLE,
    SAMPLE_LOCK_STRATEGIES,
    buy,
    committed,
    open_sale,
    parse_reply,
)

pytestmark = committed


def test_product_is_looked_up_once() -> None:
    """A process checks once that a product exists, and caches that. It does not cache a 404.

    A query before the lock would occupy a pooled connection for as long as the buyer waits.
    """
    assert buy(product="looked-up-once").status == 404
    open_sale(10, product="looked-up-once")
    assert buy(product="looked-up-once").status == 201, "the 404 should not be cached"
    with CaptureQueriesContext(connection) as queries:
        assert buy(product="looked-up-once").status == 201
    # There is no SELECT. The first statement on the table writes the fence of the lock.
    product_statements = [query["sql"] for query in queries if "product" in query["sql"]]
    assert product_statements[0].strip().startswith("UPDATE product SET fence")


def test_connection_is_closed_after_the_product_lookup() -> None:
    """A buyer who waits for the lock must not occupy a pooled connection."""
    product = "sold-only-in-this-test"  # so that it is not in the process's cache yet
    open_sale(1, product=product)
    require_existing_product(product)
    assert connection.connection is None


def test_concurrent_buyers_look_a_product_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten buyers at the same time cause one lookup of a product that is not in the cache."""
    open_sale(50, product="new-here")
    queried_products: list[str] = []
    is_in_database = known_products._is_in_database

    def record_query(product: str) -> bool:
        queried_products.append(product)
        return is_in_database(product)

    monkeypatch.setattr(known_products, "_is_in_database", record_query)
    start = threading.Barrier(10)

    def buy_one(number: int) -> int:
        start.wait(10)
        body = {"buyer": f"b{number}", "product": "new-here", "lock": "row-lock"}
        try:
            return parse_reply(Client().post("/buy", body)).status
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as buyers:
        assert set(buyers.map(buy_one, range(10))) == {201}
    assert queried_products == ["new-here"]


# --- the statements of a sale ---------------------------------------------------------------------


def buy_and_list_verbs(lock: str, buyer: str) -> list[str]:
    """Buy, and return the first word of each SQL statement, without BEGIN and COMMIT."""
    with CaptureQueriesContext(connection) as queries:
        assert buy(lock=lock, buyer=buyer).status == 201
    verbs = [query["sql"].split()[0] for query in queries]
    return [verb for verb in verbs if verb not in ("BEGIN", "COMMIT")]


@pytest.mark.parametrize("lock", SAMPLE_LOCK_STRATEGIES)
def test_no_statement_runs_before_the_lock(lock: str) -> None:
    """With a statement before the lock, a waiting buyer would occupy a pooled connection.

    The holder of the lock might then get no connection. The test records the statements of a
    purchase and the points that it reaches, in order. A point is a named place in its code.
    """
    log: list[str] = []

    def record_statement(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        log.append(" ".join(sql.split()))
        return execute(sql, *rest)

    def record_point(point: str, fields: Mapping[str, object]) -> None:
        if not is_skipped(point):  # leaves out `arrives`, `begins` and `acquire`
            log.append(f"-- {point}")

    open_sale(1)
    require_existing_product(APPLE)  # otherwise the first buyer looks the product up
    connection.close()
    with connection.execute_wrapper(record_statement), use_probe(record_point):
        assert buy(lock=lock, key="k1").status == 201
    assert log[0] == "-- acquired", log
    has_claimed_fence = log[1].startswith("UPDATE product SET fence = %s WHERE name = %s AND")
    assert has_claimed_fence == (lock == "redis"), log  # `token` has no fence


@pytest.mark.parametrize(
    ("lock", "expected_verbs"),
    [
        ("row-lock", ["SELECT", "UPDATE", "INSERT"]),
        ("redis", ["UPDATE", "UPDATE", "INSERT"]),
        ("buckets", ["SELECT", "UPDATE", "INSERT"]),
        ("skip-locked", ["SELECT", "DELETE", "INSERT"]),
    ],
)
def test_sale_takes_three_statements(lock: str, expected_verbs: list[str]) -> None:
    """A purchase reads the stock, writes the stock, and inserts the order.

    `redis` reads by an UPDATE ... RETURNING, which also writes its fence. A first purchase is not
    counted, because it may look up the product.
    """
    open_sale(20, lock=lock)
    assert buy(lock=lock, buyer="first-buyer").status == 201
    assert buy_and_list_verbs(lock, "bob") == expected_verbs


@pytest.mark.parametrize("lock", ["buckets", "skip-locked", "redis"])
def test_purchase_runs_no_query_of_the_orm(lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purchase is written in SQL, because the ORM would double its processor time.

    Under `redis` a purchase that sells does use the ORM, but a refused one does not. So in that
    case there is one unit, and the second purchase is refused.
    """
    open_sale(1 if lock == "redis" else 20, lock=lock)
    assert buy(lock=lock, buyer="first-buyer").status == 201
    monkeypatch.delattr(SQLCompiler, "execute_sql")  # from now on every query of the ORM raises
    reply = buy(lock=lock, buyer="bob", key="a-key-that-has-not-bought")
    assert reply.status == (409 if lock == "redis" else 201)
