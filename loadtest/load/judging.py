"""The verdict on a load run: each product's sale is judged as the sale of a rush is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from loadtest.judge.intervals import ProductHistory, Request
from loadtest.judge.verdict import Asked, Judgement, Reply, judge
from loadtest.load.figures import Purchase
from loadtest.load.plan import Plan
from loadtest.rush.rush import recorded
from loadtest.stack.client import Shop

#: Seconds until orders that were promised have to be there: a strategy may settle them later.
SETTLED_WITHIN = 30.0
#: Answers that say that nothing was sold. A buyer who had no others is left out of the verdict; an
#: order with its key is then one that nobody asked for.
REFUSED = frozenset({"busy", "lost", "unavailable", "throttled"})
#: The worst first.
WORST = ("oversold", "undersold", "deadlock", "unknown", "exact")


def judged(plan: Plan, purchases: Sequence[Purchase], shop: Shop) -> dict[str, Any]:
    """The fields of a run that the judge finds, over all products.

    Waits for orders that a strategy settles later. Raises ShopUnreachable.
    """
    asked = [one for one in purchases if not was_refused(one)]
    found = [
        _product(plan, place, [one for one in asked if one.product == place], shop)
        for place in range(plan.products)
    ]
    reports = [report for report, _ in found]
    together = _together([one for _, one in found if one is not None], reports)
    lags = [one["lag"] for one in reports if one["lag"] is not None]
    together["never_answered"] += len(purchases) - len(asked)
    return {**together, "settlement_lag_ms": max(lags, default=None), "products": reports}


def was_refused(purchase: Purchase) -> bool:
    """Whether every answer to a purchase said that nothing was sold, and that it may be tried
    again."""
    return {request.outcome for request in purchase.requests} <= REFUSED


def _product(
    plan: Plan, place: int, purchases: Sequence[Purchase], shop: Shop
) -> tuple[dict[str, Any], Judgement | None]:
    """The sums of one product, and what the judge says of it; None: nobody asked for it."""
    sale, name = plan.sales[place], plan.names[place]
    report = shop.settled_sale(sale, seconds=SETTLED_WITHIN)
    lag = report.get("settlement_lag_ms")
    sums: dict[str, Any] = {
        "product": name,
        "sale": sale,
        "asked": plan.stock,
        "orders": int(report["orders"]),
        "left": int(report["stock_left"]),
        "lag": lag.get("p99", lag.get("max")) if isinstance(lag, dict) else lag,
    }
    if not purchases:
        return sums, None
    requests = [request for one in purchases for request in one.requests]
    judgement = judge(
        initial_stock=int(report["initial_stock"]),
        stock_left=int(report["stock_left"]),
        orders=shop.orders(sale),
        replies=[_reply(one.requests) for one in purchases],
        history=ProductHistory(recorded(requests, plan.lock, name, sale)),
        unsettled=report.get("unsettled", 0),
        asked=Asked(stock=plan.stock, lock=plan.lock, product=name, sale=sale),
    )
    return {**sums, "verdict": judgement.verdict}, judgement


def _reply(requests: Sequence[Request]) -> Reply:
    *before, last = requests
    earlier = tuple(one.outcome for one in before)
    return Reply(last.attempt, last.outcome, last.order, last.replayed, earlier)


def _together(judgements: Sequence[Judgement], reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fields of Judged, added up; the verdict is the worst of a product's."""
    outcomes: Counter[str] = Counter()
    for one in judgements:
        outcomes.update(one.outcomes)
    worst = min(judgements, key=lambda one: WORST.index(one.verdict), default=None)
    asked, orders, left = (
        sum(one[name] for one in reports) for name in ("asked", "orders", "left")
    )
    found = dict.fromkeys(rule for one in judgements for rule in one.violations)
    wrong = [one for one in reports if one["asked"] != one["orders"] + one["left"]]
    verdict = worst.verdict if worst else "unknown"
    why = worst.why if worst else "nobody bought anything"
    if wrong and verdict == "exact":  # the judge saw only the products that somebody tried to buy
        verdict = "unknown"
        why = (
            f"{wrong[0]['product']}: {wrong[0]['asked']} units, {wrong[0]['orders']} sold and "
            f"{wrong[0]['left']} left do not add up"
        )
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
        "findings": [finding.what for one in judgements for finding in one.findings],
        "verdict": verdict,
        "why": why,
    }
