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


@pytest.mark.parametrize(
    ("of_sale", "run", "verdict"),
    [
        (sale(1), judged("exact"), "exact"),
        (sale(1), judged("undersold"), "undersold"),
        (sale(1), judged("oversold"), "oversold"),
        (sale(2), judged("unknown"), "unknown"),  # whatever the orders say
        (sale(3, left=0), judged("exact"), "oversold"),  # by orders after the rush
        (sale(1, left=0, open=False), judged("unknown", stopped=True), "stopped"),
        (sale(3, left=0, open=False), judged("unknown", stopped=True), "oversold"),
    ],
)
def test_the_verdict_of_the_run_is_the_badge_unless_the_orders_refute_it(
    of_sale: dict[str, Any], run: dict[str, Any], verdict: str
) -> None:
    shown = named(of_sale, run, None)
    assert (shown["verdict"], shown["lock"]) == (verdict, "none")


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
        (sale(1, locks=["none", "redis"]), "open"),
    ],
)
def test_a_sale_by_hand_is_called_by_its_orders(of_sale: dict[str, Any], verdict: str) -> None:
    shown = named(of_sale, None, None)
    assert (shown["verdict"], shown["lock"]) == (verdict, ", ".join(of_sale["locks"]))
