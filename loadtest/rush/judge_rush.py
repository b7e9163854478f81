"""The verdict on a rush, from the report of its buyers and the record of its sale.

In a rush, many buyers send their purchases at the same instant.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from loadtest.judge.history import Event
from loadtest.judge.verdict import Judgement
from loadtest.rush.buyers_report import BuyersReport
from loadtest.rush.plan import RushPlan
from loadtest.rush.timing import measure_timing


def judge_rush(
    plan: RushPlan,
    report: BuyersReport,
    *,
    events: Sequence[Event],
    opening_stock: int,
    stock_left: int | None,
    orders: Sequence[Mapping[str, Any]],
    unsettled_promises: int | None,
    judging_scope: Mapping[str, list[str]],
    nodes_recorded: bool = False,
    leaked_keys: Sequence[str] = (),
) -> dict[str, Any]:
    """Judge a rush, and return its run: the figures and the verdict, as in `summary.json`.

    In a rush, many buyers send their purchases at the same instant.

    The caller has to add the expected verdict, and to call mark_incomplete_as_unknown(): this
    verdict does not consider whether the rush was stopped or lost buyers.

    events         the events of the buyers, and those of the nodes if they were recorded
    stock_left     None if the shop shows no stock
    judging_scope  what is judged and what is not, as describe_judging_scope() returns it

    SaleRecord (judge/sale_record.py) describes the other parameters.
    """
    # The judge needs a stock. If the shop shows none, assume that each order took one unit.
    judged_stock_left = plan.stock - len(orders)
    if stock_left is not None:
        judged_stock_left = stock_left
    arrivals = report.arrived
    if report.lost:
        # A lost process has not reported how many of its buyers arrived. So assume that all did:
        # the judge must not count them as `never_arrived`.
        arrivals = plan.buyers
    judgement = Judgement(
        events=events,
        initial_stock=plan.stock,
        opening_stock=opening_stock,
        stock_left=judged_stock_left,
        orders=orders,
        leaked_keys=leaked_keys,
        unsettled_promises=unsettled_promises,
        buyer_keys=[f"{report.rush_id}/buyer-{number}" for number in range(plan.buyers)],
        arrivals=arrivals,
        strategy=report.lock,
        product=report.product,
        sale=report.sale,
        nodes_recorded=nodes_recorded,
        undisturbed=True,  # no fault is injected in a rush
    )
    run: dict[str, Any] = {
        "lock": report.lock,
        "fault": "rush",
        "sale": report.sale,
        "attempts": report.rush_id,
        "buyers": plan.buyers,
        "arrived": report.arrived,
        "hold_ms": plan.hold_ms,
        **judgement.as_judged(),
        **measure_timing(report.requests),
        **judging_scope,
    }
    if stock_left is None:
        run |= {"stock_left": None, "lost_updates": None}
    if report.stopped:
        run["stopped"] = True
    if report.lost:
        run["lost"] = list(report.lost)
    return run


def mark_incomplete_as_unknown(run: MutableMapping[str, Any]) -> None:
    """Change the verdict on a rush to `unknown` if the rush was stopped or lost buyers.

    A rush (many buyers at the same instant) loses buyers if a process that runs them ends early.
    The verdict `oversold` stays, because missing answers cannot explain surplus orders.
    """
    reasons = list(run.get("lost", ()))
    if run.get("stopped"):
        reasons.insert(0, "the rush was stopped")
    if not reasons:
        return
    run["verdict"] = "oversold" if run["oversold"] else "unknown"
    run["why"] = f"{'; '.join(reasons)}: {run.get('why') or 'not every buyer had an answer'}"
