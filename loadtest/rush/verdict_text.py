"""The result of a rush in words."""

from collections.abc import Mapping
from typing import Any

from loadtest.judge.finding import format_count


def describe_run(run: Mapping[str, Any]) -> str:
    """Describe a run: its verdict in one line, the parts not judged, the verdict's reasons."""
    headline = f"{run['verdict'].upper()} [{run.get('lock', '-')}]"
    if "orders" in run:
        orders = format_count(run["orders"], "order")
        units = format_count(run["initial_stock"], "unit")
        headline += f": {orders} for {units}"
        if run["stock_left"] is not None:  # None if the shop shows no stock
            headline += f", {run['stock_left']} left on the shelf"
    lines = [headline]
    lines += [f"not judged: {part}" for part in run.get("not_judged", ())]
    reasons = [run.get("why")] + list(run.get("findings", ())) + [run.get("error")]
    lines += dict.fromkeys(str(reason) for reason in reasons if reason)  # each reason once
    return "\n".join(lines)
