"""The verdict on a load run, product by product, from a shop that is made up."""

from __future__ import annotations

from typing import Any, cast

import pytest

from loadtest.load import judging
from loadtest.load.figures import Sale
from loadtest.load.judging import judged
from loadtest.load.plan import Plan
from loadtest.stack.client import Shop, ShopUnreachable

STOCK = 10
PLAN = Plan("run", "redis", ["load-001", "load-002"], [1, 2], ["http://127.0.0.1:1"])


class FakeShop:
    """What it says of each sale, and the orders of the plan's purchases.

    late  how often a report is asked for before all orders are in it
    """

    def __init__(self, bought: dict[int, int], left: dict[int, int], *, late: int = 0) -> None:
        self.bought = bought
        self.left = left
        self.late = late
        self.lag: dict[int, Any] = {}
        self.asked = 0
        self.unsettled: int | None = 0

    def sale(self, number: int) -> dict[str, Any]:
        self.asked += 1
        shown = self.bought[number] if self.asked > self.late else 0
        lag = {"settlement_lag_ms": self.lag[number]} if number in self.lag else {}
        of_sale = {"orders": shown, "stock_left": self.left[number], "unsettled": self.unsettled}
        return {"initial_stock": STOCK, **of_sale, **lag}

    def orders(self, number: int) -> list[dict[str, Any]]:
        return [
            {
                "order": number * 100 + place,
                "key": PLAN.key(number, place),
                "buyer": f"c{number}-{place}",
                "lock": "redis",
            }
            for place in range(self.bought[number])
        ]


def bought(number: int, count: int, outcome: str = "sold") -> list[Sale]:
    """Purchases of a sale's product, by the client of the same number."""
    return [
        Sale(number - 1, number, place, 0.0, 0.0, 0.1, outcome, number * 100 + place)
        for place in range(count)
    ]


def judge(shop: FakeShop, *sales: Sale) -> dict[str, Any]:
    return judged(PLAN, sales, cast(Shop, shop), stock=STOCK)


def test_two_products_whose_sums_are_right_are_exact() -> None:
    found = judge(FakeShop({1: 3, 2: 1}, {1: 7, 2: 9}), *bought(1, 3), *bought(2, 1))
    assert (found["verdict"], found["violations"], found["lost_updates"]) == ("exact", [], 0)
    assert (found["initial_stock"], found["orders"], found["stock_left"]) == (20, 4, 16)
    assert found["outcomes"]["sold"] == 4
    assert found["settlement_lag_ms"] is None
    assert found["products"][0] == {
        **{"product": "load-001", "sale": 1, "asked": 10, "orders": 3, "left": 7, "oversold": 0},
        "verdict": "exact",
    }


def test_one_product_that_oversold_makes_the_run_oversold() -> None:
    found = judge(FakeShop({1: 12, 2: 1}, {1: 0, 2: 9}), *bought(1, 12), *bought(2, 1))
    assert (found["verdict"], found["oversold"]) == ("oversold", 2)
    assert [one["verdict"] for one in found["products"]] == ["oversold", "exact"]


def test_decrements_that_were_erased_show_though_nothing_ran_out() -> None:
    found = judge(FakeShop({1: 5, 2: 0}, {1: 8, 2: 10}), *bought(1, 5))
    assert (found["verdict"], found["lost_updates"]) == ("unknown", 3)
    assert "lost_update" in found["violations"]


def test_a_product_nobody_asked_for_whose_stock_is_wrong_shows() -> None:
    found = judge(FakeShop({1: 3, 2: 0}, {1: 7, 2: 4}), *bought(1, 3))
    assert found["violations"] == ["lost_update"]
    assert found["verdict"] == "unknown"
    assert found["why"] == "load-002: its stock changed, and nobody bought it"


def test_a_purchase_whose_order_is_not_there_is_no_exact_sale() -> None:
    shop = FakeShop({1: 2, 2: 0}, {1: 8, 2: 10})
    shop.late = 10**6  # it never comes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "SETTLED_WITHIN", 0.0)
        found = judge(shop, *bought(1, 3))
    assert found["verdict"] != "exact"
    assert "lost_ack" in found["violations"]


def with_last(outcome: str, earlier: tuple[str, ...] = ()) -> list[Sale]:
    """Two who bought, and a third purchase."""
    return [*bought(1, 2), Sale(0, 1, 2, 0.0, 0.0, 0.1, outcome, None, earlier)]


def test_a_buyer_who_knows_not_whether_it_bought_leaves_it_unknown() -> None:
    shop = FakeShop({1: 2, 2: 0}, {1: 8, 2: 10})
    for sales in (with_last("unknown"), with_last("busy", ("unknown",))):
        found = judge(shop, *sales)
        assert (found["verdict"], found["never_answered"]) == ("unknown", 1)


def test_buyers_who_were_refused_beyond_what_the_shop_can_sell_do_not_spoil_right_sums() -> None:
    shop = FakeShop({1: 2, 2: 0}, {1: 8, 2: 10})
    found = judge(shop, *with_last("busy", ("unavailable",)))
    assert (found["verdict"], found["never_answered"]) == ("exact", 1)


def test_a_buyer_who_was_refused_and_has_an_order_is_found() -> None:
    found = judge(FakeShop({1: 3, 2: 0}, {1: 7, 2: 10}), *with_last("busy"))
    assert (found["verdict"], found["violations"]) == ("unknown", ["ghost_order"])


def test_orders_that_are_settled_later_are_waited_for_and_the_longest_lag_is_shown() -> None:
    shop = FakeShop({1: 3, 2: 1}, {1: 7, 2: 9}, late=2)
    shop.lag = {1: {"p50": 300, "p99": 900}, 2: {"p50": 500, "p99": 600}}
    found = judge(shop, *bought(1, 3), *bought(2, 1))
    assert found["verdict"] == "exact"
    assert found["settlement_lag_ms"] == {"p50": 500, "p99": 900}
    shop.lag = {1: 80.5}
    assert judge(shop, *bought(1, 3))["settlement_lag_ms"] == 80.5


def test_a_run_in_which_nobody_bought_shows_nothing() -> None:
    found = judge(FakeShop({1: 0, 2: 0}, {1: 10, 2: 10}))
    assert (found["verdict"], found["why"]) == ("unknown", "nobody bought anything")


def test_a_shop_that_is_gone_is_said() -> None:
    class Gone(FakeShop):
        def sale(self, number: int) -> dict[str, Any]:
            raise ShopUnreachable("no shop answers")

    with pytest.raises(ShopUnreachable):
        judge(Gone({}, {}), *bought(1, 1))


@pytest.mark.parametrize("unsettled", [1, None])
def test_a_sale_with_promises_that_are_not_settled_has_no_verdict(
    unsettled: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "SETTLED_WITHIN", 0.0)
    shop = FakeShop({1: 2, 2: 0}, {1: STOCK - 2, 2: STOCK})
    shop.unsettled = unsettled
    run = judge(shop, *bought(1, 2))
    assert (run["verdict"], run["violations"]) == ("unknown", ["unsettled"])


@pytest.mark.parametrize("earlier", [("busy",), ("busy", "lost")])
def test_a_buyer_who_was_told_that_nothing_was_sold_and_is_shown_an_earlier_order_is_found(
    earlier: tuple[str, ...],
) -> None:
    """What the refusal said was false: it had sold."""
    told = [one._replace(earlier=earlier, replayed=True) for one in bought(1, 1)]
    shop = FakeShop(bought={1: 1, 2: 0}, left={1: STOCK - 1, 2: STOCK})
    found = judge(shop, *told)
    assert (found["verdict"], found["violations"]) == ("unknown", ["false_refusal"])
    open_ = [one._replace(earlier=("unknown", *earlier)) for one in told]
    assert judge(shop, *open_)["violations"] == []
