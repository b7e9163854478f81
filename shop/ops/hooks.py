"""The hooks that RedisLock calls, where anything is counted at all."""

from __future__ import annotations

from django.conf import settings

from locks import Metrics


def hooks_of(lock: str) -> Metrics | None:
    """The hooks of one strategy; None without METRICS_TOKEN, and a lock is not slower for it."""
    if not settings.METRICS_TOKEN:
        return None
    from shop.ops.metrics import lock_metrics  # prometheus-client is not loaded before

    return lock_metrics(lock)
