"""What proofs of faults look at, made up: trials, buyers, proxies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loadtest.faults.fault import NotFired


def trial(**known: Any) -> Any:
    """What a proof looks at of a trial; `misses` and `wrong` are what it concluded."""
    made = SimpleNamespace(misses=[], wrong=[], lock="redis", lock_ttl=1.0, **known)
    made.miss = made.misses.append
    return made


def buyer(first: str = "", order: int | None = None) -> Any:
    return SimpleNamespace(
        first=first,
        attempt="victim",
        sold_at=0.0,
        answered=SimpleNamespace(is_set=lambda: bool(first)),
        join=lambda seconds: bool(first),
    )


class Way:
    """A proxy: whether it passes anything on, and how many bytes it has dropped."""

    def __init__(self, *, passes: bool = True) -> None:
        self.passes = passes
        self.dropped = 0

    def black_hole(self) -> None:
        self.passes = False

    def pass_on(self) -> None:
        self.passes = True


def refused(what: str) -> Any:
    return pytest.raises(NotFired, match=what)
