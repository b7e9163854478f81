"""The verdict on a load run: each product's sale is judged as the sale of a rush is."""

from collections import Counter
from typing import Any

from loadtest.judge.verdict import Judgement
from loadtest.load.figures import Measured
from loadtest.load.plan import Plan
from loadtest.stack.client import Shop

#: Seconds until orders that were promised have to be there: a strategy may settle them later.
SETTLED_WITHIN = 30.0
#: Answers that say that nothing was sold. A buyer who had no others is left out of the verdict; an
#: order with its key is then one that nobody asked for.
REFUSED = frozenset({"busy", "lost", "unavailable", "throttled"})
#: The worst first.
WORST = ("oversold", "undersold", "deadlock", "unknown", "exact")
#: What is added up over the products.
SUMS = ("initial_stock", "orders", "stock_left", "oversold", "undersold", "lost_updates")


def judged(plan: Plan, found: Measured, shop: Shop) -> dict[str, Any]:
    """The fields of a run that the judge finds, over all products; the verdict is the worst of a
    product's. Waits for orders that a strategy settles later. Raises ShopUnreachable."""
    refused = {
        one[0].attempt for one in found.purchases if {asked.outcome for asked in one} <= REFUSED
    }
    products: list[dict[str, Any]] = []
    judgements: list[dict[str, Any]] = []
    for product, sale in plan.sales.items():
        report = shop.settled_sale(sale, seconds=SETTLED_WITHIN)
        orders, left = int(report["orders"]), int(report["stock_left"])
        lag = report.get("settlement_lag_ms") or {"p99": None}
        sums = {"asked": plan.stock, "orders": orders, "left": left, "lag": lag["p99"]}
        products.append({"product": product, "sale": sale, **sums})
        events = [one for one in found.events.get(product, ()) if one["attempt"] not in refused]
        judgement = Judgement(
            events=events,
            initial_stock=plan.stock,
            opened=int(report["initial_stock"]),
            stock_left=left,
            orders=shop.orders(sale) if events or orders else (),
            unsettled=report.get("unsettled", 0),
            lock=plan.lock,
            product=product,
            sale=sale,
        )
        nobody_came = not events and not orders and left == plan.stock
        judgements.append(
            {**judgement.as_run(), **({"verdict": "exact", "why": ""} if nobody_came else {})}
        )
    worst = min(judgements, key=lambda one: WORST.index(one["verdict"]))
    outcomes: Counter[str] = Counter()
    for one in judgements:
        outcomes.update(one["outcomes"])
    lags = [one["lag"] for one in products if one["lag"] is not None]
    return {
        **worst,
        **{name: sum(one[name] for one in judgements) for name in SUMS},
        "outcomes": dict(outcomes),
        "never_answered": len(refused) + sum(one["never_answered"] for one in judgements),
        "violations": list(dict.fromkeys(rule for one in judgements for rule in one["violations"])),
        "findings": [what for one in judgements for what in one["findings"]],
        "settlement_lag_ms": max(lags, default=None),
        "products": products,
    }
