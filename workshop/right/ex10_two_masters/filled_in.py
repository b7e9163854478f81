"""Exercise 10. Two masters, five masters.

What comes out for each lock under each fault: "exact", "oversold" or "deadlock"? The table of
`make faults` knows; answer first, then look it up.
"""

from __future__ import annotations

# TODO: fill in all eight.
ANSWERS = {}
for lock in ("token-watchdog", "redlock"):
    ANSWERS[lock, "restart"] = "oversold"
for lock in ("zookeeper", "redlock"):
    ANSWERS[lock, "pause"] = "oversold"
ANSWERS["token", "failover"] = "oversold"
ANSWERS["redis", "failover"] = "exact"
ANSWERS["setnx", "eviction"] = "exact"
ANSWERS["row-lock", "redis-down"] = "exact"
# END
