"""A thread that looks at the database pool of its process once a second.

At a request's end nothing would be seen while everybody waits, and a scrape reaches one worker of
several.
"""

from __future__ import annotations

import threading
import time

from django.db import connection

from shop.ops.metrics import POOL, POOL_WAITING

#: Seconds.
EVERY = 1.0


def watch() -> None:
    """Start the thread, if there is a pool."""
    if connection.settings_dict.get("OPTIONS", {}).get("pool"):
        threading.Thread(target=_look_again_and_again, name="pool-metrics", daemon=True).start()


def look() -> None:
    """Set the gauges to what the pool of this process says."""
    stats: dict[str, int] = connection.pool.get_stats()  # type: ignore[attr-defined]
    free = stats.get("pool_available", 0)
    POOL.labels("in_use").set(stats.get("pool_size", 0) - free)
    POOL.labels("idle").set(free)
    POOL_WAITING.set(stats.get("requests_waiting", 0))


def _look_again_and_again() -> None:
    while True:
        look()
        time.sleep(EVERY)
