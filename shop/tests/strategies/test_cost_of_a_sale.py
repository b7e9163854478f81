"""Statements of a sale in PostgreSQL: where nobody waits, processor time bounds the rate, and each
statement is some of it, in the node and in PostgreSQL."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.models.sql.compiler import SQLCompiler
from django.test.utils import CaptureQueriesContext

from shop.tests.till import buy, committed, open_sale

pytestmark = committed


def statements(lock: str, buyer: str) -> list[str]:
    """The verbs of what one purchase asks PostgreSQL, the transaction's own left out."""
    with CaptureQueriesContext(connection) as asked:
        assert buy(lock=lock, buyer=buyer).status == 201
    verbs = [query["sql"].split()[0] for query in asked]
    return [verb for verb in verbs if verb not in ("BEGIN", "COMMIT")]


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
