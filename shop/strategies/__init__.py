"""Every value of `lock`, one idea per file."""

from __future__ import annotations

from shop.sale.strategy import STRATEGIES, Strategy
from shop.strategies import (
    advisory,
    buckets,
    conditional,
    counter,
    fence_at_write,
    none,
    process,
    redis,
    redis_in_transaction,
    redlock,
    reentrant,
    reserve,
    rollback,
    row_lock,
    serializable,
    setnx,
    setnx_expire,
    setnx_expire_lua,
    setnx_expire_repair,
    setnx_timestamp,
    setnx_timestamp_del,
    setpx_del,
    skip_locked,
    token,
    token_get_del,
    token_watchdog,
    version,
    zookeeper,
)

__all__ = ["STRATEGIES", "Strategy"]

#: In the order in which they are shown: the articles', the one to copy, the two that only look
#: right, the database's own.
STRATEGIES.update(
    (module.STRATEGY.name, module.STRATEGY)
    for module in (
        none,
        process,
        setnx,
        setnx_expire,
        setnx_expire_repair,
        setnx_expire_lua,
        setnx_timestamp,
        setnx_timestamp_del,
        setpx_del,
        token_get_del,
        token,
        token_watchdog,
        reentrant,
        redlock,
        zookeeper,
        redis,
        fence_at_write,
        redis_in_transaction,
        advisory,
        row_lock,
        version,
        rollback,
        conditional,
        serializable,
        buckets,
        skip_locked,
        counter,
        reserve,
    )
)
