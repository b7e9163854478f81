"""The verdict on a load run: each product's sale is judged as the sale of a rush is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from loadtest.judge.verdict import Asked, Judgement, Reply, judge
from loadtest.load.figures import Sale
from loadtest.load.plan import Plan
from loadtest.stack.client import Shop

#: Seconds until orders that were promised have to be there: a strategy may settle them later.
SETTLED_WITHIN = 30.0
#: How many products' orders are asked for at a time.
AT_ONCE = 4
#: Answers that say that nothing was sold. A buyer who had no others is left out of the verdict; an
#: order with its key is then one that nobody asked for.
REFUSED = frozenset({"busy", "lost", "unavailable", "throttled"})
#: The worst first.
WORST = ("oversold", "undersold", "deadlock", "unknown", "exact")


def judged(plan: Plan, sales: Sequence[Sale], shop: Shop, *, stock: int) -> dict[str, Any]:
    """The fields of a run that the judge finds, over all products, each with `stock` units.

    Waits for orders that a strategy settles later. Raises ShopUnreachable.
    """
    of: dict[int, list[Sale]] = {place: [] for place in range(len(plan.products))}
    for sale in sales:
        of[sale.product].append(sale)
    with ThreadPoolExecutor(AT_ONCE) as several:
        found = list(several.map(lambda at: _product(plan, at, of[at], shop, stock), of))
    reports = [report for report, _, _ in found]
    judgements = [judgement for _, judgement, _ in found if judgement is not None]
    refused = sum(was_refused(one) for one in sales)
    together = _together(judgements, reports)
    return {
        **together,
        "never_answered": together["never_answered"] + refused,
        "settlement_lag_ms": _largest([lag for _, _, lag in found]),
        "products": reports,
    }


def _product(
    plan: Plan, place: int, sales: Sequence[Sale], shop: Shop, stock: int
) -> tuple[dict[str, Any], Judgement | None, Any]:
    """The sums of one product, what the judge says of it (None: nobody asked for it), and the lag
    with which its orders were settled."""
    number = plan.sales[place]
    report = _settled(shop, number, sum(one.outcome == "sold" for one in sales))
    sums = {"product": plan.products[place], "sale": number, **_sums(report, stock)}
    lag = report.get("settlement_lag_ms")
    if not sales:
        return sums, None, lag
    judgement = _judge(plan, place, sales, report, shop, stock)
    return {**sums, "verdict": judgement.verdict}, judgement, lag


def _settled(shop: Shop, sale: int, promised: int) -> dict[str, Any]:
    """The report of a sale, once as many orders are there as were answered and no promise waits,
    or as it is after SETTLED_WITHIN."""
    deadline = time.monotonic() + SETTLED_WITHIN
    while True:
        report = shop.sale(sale)
        is_settled = int(report["orders"]) >= promised and report.get("unsettled", 0) == 0
        if is_settled or time.monotonic() > deadline:
            return report
        time.sleep(0.1)


def _sums(report: dict[str, Any], stock: int) -> dict[str, int]:
    return {
        "asked": stock,
        "orders": int(report["orders"]),
        "left": int(report["stock_left"]),
        "oversold": max(0, int(report["orders"]) - stock),
    }


def _judge(
    plan: Plan, place: int, sales: Sequence[Sale], report: dict[str, Any], shop: Shop, stock: int
) -> Judgement:
    """The judge's word on one product. It knows each buyer's answers, and no times."""
    sales = [one for one in sales if not was_refused(one)]
    number = plan.sales[place]
    return judge(
        initial_stock=int(report["initial_stock"]),
        stock_left=int(report["stock_left"]),
        orders=shop.orders(number),
        replies=[_reply(plan, sale) for sale in sales],
        unsettled=report.get("unsettled", 0),
        asked=Asked(stock=stock, lock=plan.lock, product=plan.products[place], sale=number),
    )


def _reply(plan: Plan, sale: Sale) -> Reply:
    key = plan.key(sale.client, sale.number)
    return Reply(key, sale.outcome, sale.order, sale.replayed, tuple(sale.earlier))


def was_refused(sale: Sale) -> bool:
    """Whether every answer to a purchase said that nothing was sold, and that it may be tried
    again."""
    return {sale.outcome, *sale.earlier} <= REFUSED


def _together(judgements: Sequence[Judgement], reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fields of Judged, added up; the verdict is the worst of a product's."""
    outcomes: Counter[str] = Counter()
    for one in judgements:
        outcomes.update(one.outcomes)
    worst = min(judgements, key=lambda one: WORST.index(one.verdict), default=None)
    sums = ("asked", "orders", "left")
    asked, orders, left = (sum(one[name] for one in reports) for name in sums)
    found = dict.fromkeys(rule for one in judgements for rule in one.violations)
    wrong = [one for one in reports if one["asked"] != one["orders"] + one["left"]]
    verdict = worst.verdict if worst else "unknown"
    why = worst.why if worst else "nobody bought anything"
    if wrong and verdict == "exact":  # the judge saw only the products that somebody tried to buy
        verdict, why = "unknown", f"{wrong[0]['product']}: its stock changed, and nobody bought it"
    return {
        "initial_stock": asked,
        "orders": orders,
        "stock_left": left,
        "oversold": sum(one.oversold for one in judgements),
        "undersold": sum(one.undersold for one in judgements),
        "lost_updates": orders + left - asked,
        "outcomes": dict(outcomes),
        "never_arrived": 0,
        "never_asked": 0,
        "never_answered": sum(one.never_answered for one in judgements),
        "violations": list(found) or (["lost_update"] if wrong else []),
        "verdict": verdict,
        "why": why,
    }


def _largest(lags: Sequence[Any]) -> Any:
    """The settlement lag of all products: by field the largest, None where no sale has one."""
    known = [lag for lag in lags if lag is not None]
    if known and all(isinstance(lag, dict) for lag in known):
        names = dict.fromkeys(name for lag in known for name in lag)
        return {name: max((lag[name] for lag in known if lag.get(name) is not None), default=None)
                for name in names}  # fmt: skip
    return max(known, default=None)
