"""The verdict on a rush that did not run to its end, or whose buyers' reports cannot be true."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any


def cut_short(run: MutableMapping[str, Any], reason: str) -> None:
    """Make the verdict of this run `unknown`, unless it had oversold by then: that stays true."""
    run["verdict"] = "oversold" if run["oversold"] else "unknown"
    run["why"] = f"{reason}: {run.get('why') or 'not everybody had an answer'}"


def reasons_of(run: Mapping[str, Any]) -> str:
    """Why there is no verdict on a rush, whatever its orders say; empty if there may be one."""
    stopped = ["the rush was stopped"] if run.get("stopped") else []
    return "; ".join([*stopped, *run.get("lost", ()), *run.get("doubts", ())])
