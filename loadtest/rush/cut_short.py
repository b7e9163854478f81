"""The verdict on a rush that did not run to its end."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any


def cut_short(run: MutableMapping[str, Any], reason: str) -> None:
    """Make the verdict of this run `unknown`, unless it had oversold by then: that stays true."""
    run["verdict"] = "oversold" if run["oversold"] else "unknown"
    run["why"] = f"{reason}: {run.get('why') or 'not everybody had an answer'}"
