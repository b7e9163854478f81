"""The facilitator's plans: `python -m workshop plan 90`."""

from __future__ import annotations

import textwrap
import tomllib
from typing import Any

from workshop.lessons import HERE

#: Columns of a terminal.
WIDTH = 80


def plans() -> dict[int, dict[str, Any]]:
    """Every plan by its minutes."""
    with (HERE / "plans.toml").open("rb") as file:
        return {int(minutes): plan for minutes, plan in tomllib.load(file).items()}


def lines(minutes: int) -> list[str]:
    """A plan, a line for each part: when it begins, how long it takes, what it is."""
    plan = plans()[minutes]
    at, found = 0, [str(plan["title"])]
    for takes, what in plan["parts"]:
        begins = f"{at:4}  {takes:3} min  "
        found += textwrap.wrap(begins + what, WIDTH, subsequent_indent=" " * len(begins))
        at += takes
    return [*found, f"{at:4}  end"]
