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
    """A plan, a line for each part: when it begins, how long it takes, what it is; below it what is
    typed or opened for it, one a line."""
    plan = plans()[minutes]
    at, found = 0, [str(plan["title"])]
    for what in plan.get("before", ()):
        found += _part("before        ", what)
    for takes, what, *used in plan["parts"]:
        begins = f"{at:4}  {takes:3} min  "
        found += _part(begins, what)
        for each in used:
            found += _part(" " * len(begins), each)
        at += takes
    return [*found, f"{at:4}  end"]


def _part(begins: str, what: str) -> list[str]:
    if what.startswith("$"):  # to be copied: never cut
        return [begins + what]
    return textwrap.wrap(begins + what, WIDTH, subsequent_indent=" " * len(begins))
