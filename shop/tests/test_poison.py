"""What is on the stream and cannot be settled: it is set aside, and holds nobody up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shop.models import Product, PurchaseHistory
from shop.ops.redis import locks_client
from shop.reserve.promises import BROKEN, STREAM, count_key, promised
from shop.reserve.reconcile import reconcile
from shop.sale.reports import sale_report
from shop.tests.till import APPLE, books, buy, committed, open_sale, settle_all

pytestmark = committed


def sell(*keys: str) -> list[int]:
    return [int(buy(key=key, buyer=key, lock="reserve").body["order"]) for key in keys]


def add(sale: int, fields: dict[str, Any]) -> None:
    client: Any = locks_client()
    client.xadd(STREAM, {"sale": sale, **fields})


def entry(sale: int) -> dict[str, Any]:
    """A promise that was made, to make another one of."""
    return dict(json.loads(locks_client().xrange(STREAM)[0][1][b"order"]))  # type: ignore[index]


@pytest.mark.parametrize(
    "fields",
    [
        {"seen": 3, "order": "{"},
        {"seen": "many", "order": "{}"},
        {"seen": 3, "order": '{"of": "a newer node"}'},
        {"other": "fields"},
    ],
    ids=["no JSON", "no number", "an unknown field", "fields missing"],
)
def test_an_entry_that_nobody_can_read_is_set_aside_and_the_others_are_settled(
    fields: dict[str, Any],
) -> None:
    """The consumer died of it, and so did the next one: nothing was settled any more."""
    sale = open_sale(5)
    sell("a")
    add(sale.pk, fields)
    sell("b")
    assert sale_report(sale.pk).as_dict()["unsettled"] == 3
    settle_all()
    assert PurchaseHistory.objects.count() == 2
    report = sale_report(sale.pk).as_dict()
    assert (report["settled"], report["broken_promises"], report["unsettled"]) == (2, 1, 0)
    client: Any = locks_client()
    ((_, kept),) = client.xrange(BROKEN)
    assert {name.decode() for name in kept} >= fields.keys()
    assert buy(key="c", lock="reserve").status == 201


def test_an_entry_without_a_sale_is_set_aside_too() -> None:
    sale = open_sale(5)
    client: Any = locks_client()
    client.xadd(STREAM, {"nothing": "known"})
    sell("a")
    settle_all()
    assert (books(), client.xlen(BROKEN), client.xlen(STREAM)) == ((1, 4), 1, 0)
    assert sale_report(sale.pk).as_dict()["settled"] == 1


def test_an_order_that_postgresql_refuses_is_a_broken_promise_and_the_others_are_settled() -> None:
    sale = open_sale(5)
    sell("a", "b")
    wrong = entry(sale.pk) | {"order": 10**9, "key": "w", "buyer": "w\0"}
    add(sale.pk, {"seen": 3, "order": json.dumps(wrong)})
    sell("c")
    settle_all()
    assert (books(), locks_client().xlen(STREAM)) == ((3, 2), 0)
    report = sale_report(sale.pk).as_dict()
    assert (report["settled"], report["broken_promises"], report["unsettled"]) == (3, 1, 0)


def test_promises_of_a_sale_that_was_deleted_are_broken_and_hold_nobody_up() -> None:
    gone = open_sale(5, product="pear")
    buy(key="p", product="pear", lock="reserve")
    Product.objects.filter(name="pear").update(sale=None)
    gone.delete()
    open_sale(5)
    sell("a")
    settle_all()
    assert (books(APPLE), locks_client().xlen(STREAM)) == ((1, 4), 0)


def test_a_promise_that_was_trimmed_away_is_found_by_reconciliation() -> None:
    """XTRIM, or an operator's XDEL: the unit is counted as sold, and its order is nowhere."""
    sale = open_sale(5)
    lost, kept = sell("a", "b")
    client: Any = locks_client()
    client.xtrim(STREAM, maxlen=1, approximate=False)
    lines = [f"outcome=sold order={number} sale={sale.pk}" for number in (lost, kept)]
    found = reconcile(sale, answers=lines)
    assert (found.undersold, found.overpromised, found.not_kept) == (1, 0, (lost,))
    locks_client().delete(count_key(sale.pk))  # the next buyer begins with what is left
    sell("c")
    assert promised(sale.pk)[0] == 3
    assert books() == (2, 3)
