"""Lesson 2: what a sale came to, counted from its orders."""

from __future__ import annotations

from types import ModuleType

from workshop.refusal import Refusal

#: Initial stock, orders, stock left; then how many were oversold, and how many updates were lost.
SALES = [
    ((100, 100, 0), (0, 0)),
    ((100, 200, 97), (100, 197)),
    ((100, 101, 0), (1, 1)),
    ((100, 101, -1), (1, 0)),
    ((10, 9, 1), (0, 0)),
    ((10, 12, 3), (2, 5)),
    ((10, 10, 1), (0, 1)),
    ((10, 5, 5), (0, 0)),
]


def refusal(module: ModuleType) -> Refusal | None:
    """The first sale that is counted wrong, and how; None if none is."""
    oversold, lost_updates = module.oversold, module.lost_updates
    if all(oversold(*sale) is None for sale, _ in SALES):
        return Refusal("todo")
    for sale, (over, lost) in SALES:
        initial, orders, left = sale
        facts = {"initial": initial, "orders": orders, "left": left}
        got = oversold(*sale)
        if got != over:
            if isinstance(got, int) and got < 0:
                return Refusal("negative-oversell", {**facts, "got": got})
            alone = [oversold(initial, orders, other) for other in (-7, 0, 50)]
            code = "looks-at-stock" if len(set(alone)) > 1 else "counts-wrong"
            return Refusal(code, {**facts, "got": got, "right": over})
        got = lost_updates(*sale)
        if got != lost:
            return Refusal("misses-lost-updates", {**facts, "got": got, "right": lost})
    return None
