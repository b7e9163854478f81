"""The verdict that the page shows for a sale, and the lock that the verdict is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Verdicts of the judge that a later order of the same sale refutes.
NOT_OVERSOLD = {"exact", "undersold"}


def named(
    sale: Mapping[str, Any], run: Mapping[str, Any] | None, rush: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The sale with its `verdict` and its `lock`.

    run   what Locust says of the rush of this sale, as in `summary.json`; None before its end
    rush  the rush that is on for this sale, None if none is

    While it runs, and for a sale without a rush, only the orders decide: `oversold`, else
    `running`, `exact`, `open` or `closed`. A rush that somebody stopped is `stopped`, unless it had
    oversold by then.
    """
    lock = (run or rush or {}).get("lock") or ", ".join(sale["locks"])
    return {**sale, "verdict": _verdict(sale, run, rush), "lock": lock}


def _verdict(
    sale: Mapping[str, Any], run: Mapping[str, Any] | None, rush: Mapping[str, Any] | None
) -> str:
    if run is not None:
        judged = str(run["verdict"])
        if sale["oversold"] and (judged in NOT_OVERSOLD or run.get("stopped")):
            return "oversold"
        return "stopped" if run.get("stopped") else judged
    if sale["oversold"]:
        return "oversold"
    if rush is not None:
        return "running"
    if sale["orders"] == sale["initial_stock"] and not sale["lost_updates"]:
        return "exact"
    return "open" if sale["open"] else "closed"
