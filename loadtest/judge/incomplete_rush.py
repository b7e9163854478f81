"""The verdict on a rush that was stopped or that lost buyers."""

from collections.abc import MutableMapping
from typing import Any


def mark_incomplete_as_unknown(run: MutableMapping[str, Any]) -> None:
    """Make the verdict on a rush `unknown` if it was stopped or lost buyers.

    If it had oversold by then, it stays oversold.
    """
    reasons = list(run.get("lost", ()))
    if run.get("stopped"):
        reasons.insert(0, "the rush was stopped")
    if not reasons:
        return
    run["verdict"] = "oversold" if run["oversold"] else "unknown"
    run["why"] = f"{'; '.join(reasons)}: {run.get('why') or 'not every buyer had an answer'}"
