"""Hooks for metrics. Subclass Metrics and override what you need."""

from __future__ import annotations

import logging
from typing import Any

from .lease import LossReason, Release

logger = logging.getLogger(__name__)


class Metrics:
    """Called by RedisLock(metrics=...), in whichever thread it happens. Seconds throughout.

    An exception that one of these raises is logged and goes no further.
    """

    def waited(self, name: str, seconds: float, acquired: bool) -> None:
        """An acquire is over; not acquired: the wait was over first, or it failed."""

    def held(self, name: str, seconds: float, outcome: Release) -> None:
        """A lease was released, with this outcome."""

    def renewed(self, name: str, seconds: float) -> None:
        """A lease was renewed; the round trip took so long."""

    def lost(self, name: str, loss: LossReason) -> None:
        """A lease was lost."""


def emit(metrics: Metrics | None, event: str, *values: Any) -> None:
    """Call the hook named `event`, if there are hooks."""
    if metrics is None:
        return
    try:
        getattr(metrics, event)(*values)
    except Exception:
        logger.exception("the hook %s failed", event)
