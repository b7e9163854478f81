"""The judgement on one sale of a testbed, whose nodes recorded what they did."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.buyer import Buyer
from loadtest.judge.intervals import ProductHistory
from loadtest.judge.sale_record import Asked
from loadtest.judge.verdict import Judgement, judge
from loadtest.stack.client import Shop


def judge_sale(
    shop: Shop,
    *,
    sale: int,
    lock: str,
    product: str,
    stock: int,
    buyers: Sequence[Buyer],
    history: ProductHistory,
    ttl: float,
    fired: bool,
    orphan: str,
    robbed: frozenset[str] | None = None,
    leaked: Sequence[str] = (),
) -> Judgement:
    """Compare the history with the shop's record and with what its buyers were answered.

    fired   whether the fault was seen to happen
    orphan  the lock's keys that are left on the server, or empty
    robbed  the keys of those whose lock the fault takes away, as in Asked
    leaked  keys of the sale that are left on the lock servers, and no lock leaves there

    Raises ShopUnreachable.
    """
    report = shop.settled_sale(sale)
    return judge(
        initial_stock=int(report["initial_stock"]),
        stock_left=int(report["stock_left"]),
        orders=shop.orders(sale),
        history=history,
        ttl=ttl,
        fired=fired,
        orphan_lock=orphan,
        leaked=leaked,
        unsettled=report["unsettled"],
        asked=Asked(
            stock=stock,
            buyers=[buyer.attempt for buyer in buyers],
            lock=lock,
            product=product,
            sale=sale,
            recorded=True,
            robbed=robbed,
            excused=frozenset(buyer.attempt for buyer in buyers if not buyer.asks_again),
        ),
    )
