"""This node's clock, for the locks whose value is a time."""

from __future__ import annotations

import time

from django.conf import settings


def now() -> float:
    """Seconds since 1970 by this node's clock, which a demo may set wrong."""
    return time.time() + (settings.SHOP_DEMO_CLOCK_AHEAD if settings.SHOP_DEMO else 0.0)
