"""Which product a buyer wants: one hot product, or many, some of which sell more than others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random


def names(count: int) -> list[str]:
    """load-001, load-002, ...: names that no other command sells."""
    return [f"load-{number:03}" for number in range(1, count + 1)]


def zipf(count: int, skew: float) -> list[float]:
    """The share of each of `count` products: the k-th is proportional to 1 / k ** skew (Zipf).

    With a skew of 0 all are alike.
    """
    weights = [1 / rank**skew for rank in range(1, count + 1)]
    total = sum(weights)
    return [weight / total for weight in weights]


class Chooser:
    """Draws the place of a product by its share; the same seed draws the same products."""

    def __init__(self, shares: Sequence[float], chance: Random) -> None:
        self._sums = list(accumulate(shares))
        self._chance = chance

    def __call__(self) -> int:
        drawn = self._chance.random() * self._sums[-1]
        return min(bisect_right(self._sums, drawn), len(self._sums) - 1)
