"""Every value of `lock`, one idea per file."""

from __future__ import annotations

from shop.strategies import (
    advisory,
    conditional,
    fence_at_write,
    none,
    redis,
    redis_in_transaction,
    rollback,
    row_lock,
    serializable,
    token,
    version,
)
from shop.strategies.registry import Strategy

__all__ = ["STRATEGIES", "Strategy"]

#: In the order in which they are shown: from the first try to the one to use.
STRATEGIES: dict[str, Strategy] = {
    module.STRATEGY.name: module.STRATEGY
    for module in (
        none,
        token,
        redis,
        fence_at_write,
        redis_in_transaction,
        advisory,
        row_lock,
        version,
        rollback,
        conditional,
        serializable,
    )
}
