"""The judgement on a rush whose nodes recorded what they did."""

import time
from collections.abc import Sequence
from typing import Any

from loadtest.judge.evidence import STAYS
from loadtest.judge.verdict import Asked, Judgement
from loadtest.stack.client import Shop
from loadtest.stack.stack import Stack

#: Seconds until the last keys have to be gone: a release may be on its way.
GONE_WITHIN = 1.0


def judged_with_history(stack: Stack, asked: Asked, keys_before: set[str]) -> Judgement:
    """Judge a rush that is over, by what was asked for and by all that was recorded.

    keys_before  what was on the lock servers when it began

    Raises ShopUnreachable, OSError.
    """
    events = stack.new_events()
    shop = stack.shop()
    report = shop.settled_sale(asked.sale)
    return Judgement(
        events=events,
        opened=int(report["initial_stock"]),
        stock_left=int(report["stock_left"]),
        orders=shop.orders(asked.sale),
        leaked=leaked_keys(stack, keys_before),
        unsettled=report["unsettled"],
        asked=asked,
    )


def leaked_keys(stack: Stack, before: set[str]) -> list[str]:
    """The keys that a rush left on the lock servers although no lock leaves them there."""
    deadline = time.monotonic() + GONE_WITHIN
    while True:
        left = [key.split("/", 2)[2] for key in stack.keys_on_lock_servers() - before]
        leaked = sorted(key for key in left if not STAYS.match(key))
        if not leaked or time.monotonic() > deadline:
            return leaked
        time.sleep(0.05)


def judge_closed(shop: Shop, runs: Sequence[Any]) -> None:
    """Look again at the sales of these runs that have been closed since they were judged: what was
    left then is what was left at the close, also of what lay in buckets or in rows of units.

    A run whose units vanished is `unknown`, with the finding `lost_at_close`, unless it is worse.
    Raises ShopUnreachable.
    """
    for run in runs:
        of_products = [(one["sale"], one["left"]) for one in run.get("products", ())]
        sales = of_products or [(run.get("sale"), run.get("stock_left"))]
        for sale, left in sales:
            if sale is None or left is None:
                continue
            report = shop.sale(int(sale))
            if report["open"] or report["stock_left"] == left:
                continue
            what = f"sale {sale} had {left} units left, and was closed with {report['stock_left']}"
            run["findings"] = [*run.get("findings", ()), what]
            run["violations"] = [*run["violations"], "lost_at_close"]
            run["as_expected"] = False
            if run["verdict"] == "exact":
                run |= {"verdict": "unknown", "why": what}
