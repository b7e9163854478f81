"""What the page calls a sale. No database."""

from __future__ import annotations

from typing import Any

import pytest

from shop.demo.verdict import named


def sale(orders: int, *, stock: int = 2, left: int | None = None, **more: Any) -> dict[str, Any]:
    stock_left = max(0, stock - orders) if left is None else left
    return {
        "initial_stock": stock,
        "orders": orders,
        "stock_left": stock_left,
        "oversold": max(0, orders - stock),
        "lost_updates": orders - (stock - stock_left),
        "open": True,
        "locks": ["token"],
        **more,
    }


RUSH = {"lock": "redis"}


def judged(verdict: str, **more: Any) -> dict[str, Any]:
    return {"lock": "none", "verdict": verdict, **more}


@pytest.mark.parametrize("verdict", ["exact", "undersold", "unknown", "oversold"])
def test_the_verdict_of_the_run_is_the_badge(verdict: str) -> None:
    """By its orders alone this sale is still open: ON SALE stood here."""
    shown = named(sale(1), judged(verdict), None)
    assert (shown["verdict"], shown["lock"]) == (verdict, "none")


def test_a_rush_of_which_nothing_is_known_stays_unknown_whatever_the_orders_say() -> None:
    assert named(sale(2), judged("unknown"), None)["verdict"] == "unknown"


def test_orders_after_an_exact_rush_can_still_oversell_its_sale() -> None:
    assert named(sale(3, left=0), judged("exact"), None)["verdict"] == "oversold"


@pytest.mark.parametrize(("orders", "verdict"), [(1, "stopped"), (3, "oversold")])
def test_a_stopped_rush_is_no_verdict_on_its_lock_unless_it_had_oversold(
    orders: int, verdict: str
) -> None:
    run = judged("unknown", stopped=True)
    assert named(sale(orders, left=0, open=False), run, None)["verdict"] == verdict


@pytest.mark.parametrize(
    ("of_sale", "verdict"),
    [(sale(0), "running"), (sale(2), "running"), (sale(3, left=1), "oversold")],
)
def test_during_a_rush_an_oversell_is_seen_at_once_and_nothing_else_is_settled(
    of_sale: dict[str, Any], verdict: str
) -> None:
    shown = named(of_sale, None, RUSH)
    assert (shown["verdict"], shown["lock"]) == (verdict, "redis")


@pytest.mark.parametrize(
    ("of_sale", "verdict"),
    [
        (sale(3, left=0), "oversold"),
        (sale(2), "exact"),
        (sale(2, left=1), "open"),
        (sale(1), "open"),
        (sale(1, open=False), "closed"),
        (sale(0, open=False, locks=[]), "closed"),
    ],
)
def test_a_sale_by_hand_is_called_by_its_orders(of_sale: dict[str, Any], verdict: str) -> None:
    shown = named(of_sale, None, None)
    assert (shown["verdict"], shown["lock"]) == (verdict, ", ".join(of_sale["locks"]))


def test_a_sale_under_two_locks_names_both() -> None:
    assert named(sale(1, locks=["none", "redis"]), None, None)["lock"] == "none, redis"
