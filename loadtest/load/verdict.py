"""The verdict on a load run. The sale of each product is judged like the sale of a rush."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from loadtest.judge.buyer_events import make_buyer_events
from loadtest.judge.intervals import Request
from loadtest.judge.outcomes import RETRIED_REFUSALS
from loadtest.judge.verdict import Judgement
from loadtest.load.measurement import Measurement
from loadtest.load.plan import LoadPlan
from loadtest.stack.client import Shop

#: The longest wait until all promised orders of one product are written. A promised order is one
#: that the shop has accepted, and that a consumer process writes later. A load run promises more
#: orders than a rush, whose limit is in loadtest/stack/client.py.
LOAD_SETTLE_TIMEOUT_SECONDS = 30.0
#: A purchase is late if it began less than this before the end of the measurement. If a late buyer
#: was only refused (the outcomes RETRIED_REFUSALS), it had no time to repeat its request, and its
#: requests are not judged. This hides no sold unit: an order with the key of such a buyer would be
#: reported as a `ghost_order`, because its key is in no judged request.
LATE_SECONDS = 5.0
VERDICTS_WORST_FIRST = ("oversold", "undersold", "deadlock", "unknown", "exact")
#: Fields of a run that are sums over its products.
SUMMED_FIELDS = ("initial_stock", "orders", "stock_left", "oversold", "undersold", "lost_updates")


def judge_load(plan: LoadPlan, measurement: Measurement, shop: Shop) -> dict[str, Any]:
    """Judge the sale of each product. Return the fields of a run that have the verdict.

    The verdict on the run is the worst of the verdicts on the sales. Before a sale is judged, all
    promised orders are written, or LOAD_SETTLE_TIMEOUT_SECONDS have passed. Raises ShopUnreachable.
    """
    late_refused_attempts = _find_late_refused_attempts(measurement)
    product_figures: list[dict[str, Any]] = []
    verdicts: list[dict[str, Any]] = []
    for product, sale in plan.sales.items():
        report = shop.wait_for_settled_sale(sale, seconds=LOAD_SETTLE_TIMEOUT_SECONDS)
        requests = [
            request
            for request in measurement.requests.get(product, ())
            if request.attempt not in late_refused_attempts
        ]
        product_figures.append(_make_product_figures(plan, product, report))
        verdicts.append(_judge_product(plan, product, requests, report, shop))
    return _combine_verdicts(verdicts, product_figures, refused_count=len(late_refused_attempts))


def _find_late_refused_attempts(measurement: Measurement) -> set[str]:
    """Return the ids of the purchases (attempts) that began late and were only refused.

    Late means in the last LATE_SECONDS. These buyers had no time to try again.
    """
    late_from = (measurement.end - LATE_SECONDS) * 1e9
    return {
        purchase[0].attempt
        for purchase in measurement.purchases
        if purchase[0].sent_at >= late_from
        and {request.outcome for request in purchase} <= RETRIED_REFUSALS
    }


def _make_product_figures(
    plan: LoadPlan, product: str, report: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the figures of one product in `summary.json`.

    asked  the units that the run put up for sale
    left   the stock at the end
    lag    the 99th percentile of the milliseconds from the promise of an order to its commit; None
           if the strategy promises no orders

    report  the shop's report of the sale
    """
    lag_percentiles = report.get("settlement_lag_ms") or {"p99": None}
    return {
        "product": product,
        "sale": plan.sales[product],
        "asked": plan.stock,
        "orders": int(report["orders"]),
        "left": int(report["stock_left"]),
        "lag": lag_percentiles["p99"],
    }


def _judge_product(
    plan: LoadPlan,
    product: str,
    requests: Sequence[Request],
    report: Mapping[str, Any],
    shop: Shop,
) -> dict[str, Any]:
    """Return the verdict on the sale of one product, and its findings.

    A sale without a buyer is exact if its stock has not changed.

    report  the shop's report of the sale
    """
    sale = plan.sales[product]
    order_count = int(report["orders"])
    stock_left = int(report["stock_left"])
    is_untouched = not requests and not order_count and stock_left == plan.stock
    judgement = Judgement(
        events=make_buyer_events(requests, plan.lock, product, sale),
        initial_stock=plan.stock,
        opening_stock=int(report["initial_stock"]),
        stock_left=stock_left,
        orders=shop.orders(sale) if requests or order_count else (),
        unsettled_promises=report.get("unsettled", 0),
        strategy=plan.lock,
        product=product,
        sale=sale,
    )
    verdict: dict[str, Any] = {**judgement.as_judged()}
    if is_untouched:  # the judge itself calls a sale without a buyer `unknown`
        verdict |= {"verdict": "exact", "why": ""}
    return verdict


def _combine_verdicts(
    verdicts: Sequence[Mapping[str, Any]],
    product_figures: Sequence[Mapping[str, Any]],
    *,
    refused_count: int,
) -> dict[str, Any]:
    """Combine the verdicts on the sales into the fields of one run.

    These are sums of numbers, all findings, and the worst verdict with its reason.

    refused_count  the number of late buyers who were only refused; they count as never answered
    """
    worst_verdict = min(
        verdicts, key=lambda verdict: VERDICTS_WORST_FIRST.index(verdict["verdict"])
    )
    outcomes: Counter[str] = Counter()
    violations: list[str] = []
    findings: list[str] = []
    for verdict in verdicts:
        outcomes += Counter(verdict["outcomes"])
        violations += verdict["violations"]
        findings += verdict["findings"]
    lags_ms = [figures["lag"] for figures in product_figures if figures["lag"] is not None]
    return {
        **worst_verdict,
        **{name: sum(verdict[name] for verdict in verdicts) for name in SUMMED_FIELDS},
        "outcomes": dict(outcomes),
        "never_answered": refused_count + sum(verdict["never_answered"] for verdict in verdicts),
        "violations": list(dict.fromkeys(violations)),
        "findings": findings,
        "settlement_lag_ms": max(lags_ms, default=None),
        "products": product_figures,
    }
